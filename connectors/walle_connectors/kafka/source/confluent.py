"""A topic's records through librdkafka: the driver ``confluent``.

librdkafka fetches in threads of its own into a queue, from which a poll takes records. It does not
report offsets without a record, except at a partition's end, which then is the position.
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

_GROUP_DENIED: Final = "GROUP_AUTHORIZATION_FAILED"  # of the group that no consumer joins
_MISSING: Final = {"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"}

_offset_of = methodcaller("offset")
_time_of = methodcaller("timestamp")
_key_of = methodcaller("key")
_value_of = methodcaller("value")


class ConfluentFetcher:
    """confluent-kafka's consumer as a ``Fetcher``. For one thread."""

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
                # the library requires a group, but no consumer joins or commits to it
                "group.id": f"{model.client_id}-{model.topic}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # our own policy handles missing offsets
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "check.crcs": True,
                # limits the memory of a busy host, and checks soon again for room
                "queued.max.messages.kbytes": 8 * _MIB // _KIB,
                "fetch.queue.backoff.ms": 20,
                "fetch.max.bytes": 8 * _MIB,
                "max.partition.fetch.bytes": _MIB,
                "socket.timeout.ms": 15_000,
            },
        )

    def begin_anew(self) -> None:
        """Read the recreated topic; see ``Fetcher.begin_anew``."""
        # the old consumer keeps asking for the old topic's id
        self._consumer.close()
        self._consumer = self._make()
        self._is_assigned = False

    def assign(self, numbers: Sequence[int]) -> None:
        """Set the partitions to fetch; see ``Fetcher.assign``."""
        self._next = dict.fromkeys(numbers, 0)
        self._is_assigned = False

    def seek(self, number: int, offset: int) -> None:
        """Set the next offset; see ``Fetcher.seek``."""
        # reassign all partitions: the library can seek only in one that is fetched already
        self._next[number] = offset
        self._is_assigned = False

    def pause(self, number: int) -> None:
        """Stop fetching a partition; see ``Fetcher.pause``."""
        self._paused.add(number)
        if self._is_assigned:
            self._consumer.pause([TopicPartition(self._topic, number)])

    def resume(self, number: int) -> None:
        """Continue fetching a partition; see ``Fetcher.resume``."""
        if number in self._paused:
            self._paused.remove(number)
            self._consumer.resume([TopicPartition(self._topic, number)])  # an assignment does not
            self._is_assigned = False

    def position(self, number: int) -> int | None:
        """Return the next offset; see ``Fetcher.position``."""
        return self._next.get(number)

    def end(self, number: int) -> int:
        """Return the offset after the newest record; see ``Fetcher.end``."""
        place = TopicPartition(self._topic, number)
        _, end = self._consumer.get_watermark_offsets(place, cached=True)
        return int(end)

    def poll(self, wait_ms: int, most: int) -> Polled:
        """Return records; see ``Fetcher.poll``.

        Raises:
            SourceError: Reading of the topic failed.
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
            # a consume with a timeout would wait for all ``most`` records
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
        # an end after these records may have been reported already
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
            f"reading of topic {self._topic!r} failed ({error.name()}: {error.str()}): committed "
            "data are kept, run again"
        )

    def close(self) -> None:
        """Disconnect; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(RuntimeError):
                self._consumer.close()
