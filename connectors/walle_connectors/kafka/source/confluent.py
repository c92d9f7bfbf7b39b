"""A topic's records through librdkafka: the driver ``confluent``.

librdkafka fetches in threads of its own into a queue; a poll takes what is there. It says
nothing of offsets that are of no record, but where a partition ends: that is its position.
"""

from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from walle_connectors.kafka.librdkafka import is_waited_for, open_client
from walle_connectors.kafka.source.fetching import Polled, Records
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_stream.errors import SourceError

_MIB: Final = 2**20
_KIB: Final = 2**10

_GROUP_DENIED: Final = "GROUP_AUTHORIZATION_FAILED"  # of the one that nobody joins
_MISSING: Final = {"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"}

_offset_of = methodcaller("offset")
_time_of = methodcaller("timestamp")
_key_of = methodcaller("key")
_value_of = methodcaller("value")


class ConfluentFetcher:
    """confluent-kafka's consumer as a ``Fetcher``. One thread."""

    def __init__(self, model: KafkaSourceModel, *, has_headers: bool = False) -> None:
        """Make the consumer, which connects in its own threads."""
        self._model, self._topic, self._has_headers = model, model.topic, has_headers
        self._next: dict[int, int] = {}
        self._paused: set[int] = set()
        self._is_assigned = self._is_closed = False
        self._consumer = self._make()

    def _make(self) -> Any:
        model = self._model
        return open_client(
            Consumer,
            model,
            {
                # it wants one; nothing is stored for it, and nobody joins it
                "group.id": f"{model.client_id}-{model.topic}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # what is missing is our policy's business
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
                # what a host that is busy keeps in memory; it looks again soon for room
                "queued.max.messages.kbytes": 8 * _MIB // _KIB,
                "fetch.queue.backoff.ms": 20,
                "fetch.max.bytes": 8 * _MIB,
                "max.partition.fetch.bytes": _MIB,
                "socket.timeout.ms": 15_000,
            },
        )

    def begin_anew(self) -> None:
        """Read the topic that has the name now; see ``Fetcher.begin_anew``."""
        # librdkafka goes on asking for the one whose id it knows
        self._consumer.close()
        self._consumer = self._make()
        self._is_assigned = False

    def assign(self, numbers: Sequence[int]) -> None:
        """Take partitions; see ``Fetcher.assign``."""
        self._next = dict.fromkeys(numbers, 0)
        self._is_assigned = False

    def seek(self, number: int, offset: int) -> None:
        """Say what comes next; see ``Fetcher.seek``."""
        # all are assigned anew: a seek wants a partition that is being fetched already
        self._next[number] = offset
        self._is_assigned = False

    def pause(self, number: int) -> None:
        """Fetch nothing; see ``Fetcher.pause``."""
        self._paused.add(number)
        if self._is_assigned:
            self._consumer.pause([TopicPartition(self._topic, number)])

    def resume(self, number: int) -> None:
        """Fetch on; see ``Fetcher.resume``."""
        if number in self._paused:
            self._paused.remove(number)
            self._consumer.resume([TopicPartition(self._topic, number)])  # no assignment does it
            self._is_assigned = False

    def position(self, number: int) -> int | None:
        """Return what comes next; see ``Fetcher.position``."""
        return self._next.get(number)

    def end(self, number: int) -> int:
        """Return what is behind the newest record; see ``Fetcher.end``."""
        place = TopicPartition(self._topic, number)
        _, end = self._consumer.get_watermark_offsets(place, cached=True)
        return int(end)

    def poll(self, wait_ms: int, most: int) -> Polled:
        """Return records; see ``Fetcher.poll``.

        Raises:
            SourceError: The topic cannot be read on.
        """
        try:
            messages = self._take(wait_ms / 1000.0, most)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        found: dict[int, list[Any]] = {}
        gone: list[int] = []
        for message in messages:
            if message.error() is None:
                number = message.partition()
                rows = found.get(number)
                if rows is None:
                    rows = found[number] = []
                rows.append(message)
            else:
                self._take_error(message, gone)
        return Polled({number: self._records(number, rows) for number, rows in found.items()}, gone)

    def _take(self, wait_s: float, most: int) -> list[Any]:
        if not self._is_assigned:
            self._assign()
        messages: list[Any] = self._consumer.consume(most, 0)
        if not messages and wait_s:
            # a consume with a time waits until it has them all
            first = self._consumer.poll(wait_s)
            if first is not None:
                messages = [first]
                messages += self._consumer.consume(most - 1, 0) if most > 1 else ()
        return messages

    def _assign(self) -> None:
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, offset)
                for number, offset in self._next.items()
                if number not in self._paused
            ]
        )
        self._is_assigned = True

    def _records(self, number: int, rows: list[Any]) -> Records:
        offsets = list(map(_offset_of, rows))
        # an end may have been told behind them
        self._next[number] = max(self._next.get(number, 0), offsets[-1] + 1)
        return Records(
            offsets,
            [time[1] for time in map(_time_of, rows)],
            list(map(_key_of, rows)),
            list(map(_value_of, rows)),
            [message.headers() or () for message in rows] if self._has_headers else (),
        )

    def _take_error(self, message: Any, gone: list[int]) -> None:
        error = message.error()
        name, number = error.name(), message.partition()
        if name == "_PARTITION_EOF":
            self._next[number] = max(self._next.get(number, 0), message.offset())
        elif name in _MISSING:
            gone.append(number)
        elif name != _GROUP_DENIED and not is_waited_for(error):
            raise self._failure(error)

    def _failure(self, error: Any) -> SourceError:
        return SourceError(
            f"topic {self._topic!r} cannot be read on ({error.name()}: {error.str()}): what was "
            "committed is kept, run again"
        )

    def close(self) -> None:
        """Disconnect; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(RuntimeError):
                self._consumer.close()
