"""A consumer of the features: reads their topic and notes when each could be used."""

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from kafka import KafkaConsumer, TopicPartition
from walle_stream.clock import monotonic_ms
from walle_stream.wire.record import decode_record

if TYPE_CHECKING:
    from ipv_parts.shop import Key

_POLL_MS: Final = 100
_WAIT_S: Final = 0.05


class Usable(NamedTuple):
    """A feature that arrived."""

    at_ms: float
    """Monotonic clock."""
    feature: dict[str, Any]


class Watcher:
    """A consumer of partition 0 in a thread of its own; a context manager."""

    def __init__(self, brokers: str, topic: str) -> None:
        """Begin at the topic's end.

        Args:
            brokers: ``host:port``.
            topic: Of features.
        """
        self._consumer: Any = KafkaConsumer(
            bootstrap_servers=brokers, enable_auto_commit=False, group_id=None
        )
        partition = TopicPartition(topic, 0)
        self._consumer.assign([partition])
        self._consumer.seek_to_beginning(partition)
        self._consumer.position(partition)
        self._is_ended = False
        self.seen: dict[Key, Usable] = {}
        """The first of each view."""
        self.doubled = 0
        """Records of views that had one."""
        self.last_ms = monotonic_ms()
        """When the last record came."""
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread and close."""
        self._is_ended = True
        self._thread.join()
        self._consumer.close()

    def wait(self, count: int, silence_s: float) -> None:
        """Wait until a number of views have features, or until none comes for a while."""
        began_ms = monotonic_ms()
        pause = threading.Event()
        while len(self.seen) < count:
            silent_ms = monotonic_ms() - max(self.last_ms, began_ms)
            if silent_ms > silence_s * 1e3:
                return
            pause.wait(_WAIT_S)

    def _watch(self) -> None:
        decode = msgspec.json.Decoder().decode
        while not self._is_ended:
            polled = self._consumer.poll(timeout_ms=_POLL_MS)
            if not polled:
                continue
            at_ms = self.last_ms = monotonic_ms()
            for record in (each for batch in polled.values() for each in batch):
                envelope, value = decode_record(record.key, record.value, record.headers)
                feature = decode(value)
                key = (envelope.device_id, feature["page_instance"])
                self.doubled += key in self.seen
                self.seen.setdefault(key, Usable(at_ms, feature))
