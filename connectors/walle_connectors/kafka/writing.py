"""Writing of records to a topic with acknowledgements, for commands and not for pipelines."""

from threading import Condition
from typing import Any, Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.drivers import open_producer
from walle_connectors.kafka.producing import Handed, Outgoing, Refusal, TopicRecord
from walle_stream.errors import BrokerUnreachableError, TopicError
from walle_stream.wire.headers import Headers

FLUSH_S: Final = 60.0
"""Longest wait for the brokers' acknowledgements."""

_AHEAD_BYTES: Final = 16 * 2**20  # limit of unacknowledged bytes
_RECORD_BYTES: Final = 200  # estimated overhead of a record
_LINGER_MS: Final = 5


class TopicWriter:
    """Writer of records to one topic. For one thread; blocks.

    It raises ``TopicError`` if the topic is missing or refuses a record, and
    ``BrokerUnreachableError`` if brokers do not answer or refuse TLS.
    """

    def __init__(
        self, connection: Connection, topic: str, *, max_bytes: int, named_by: str = "topic"
    ) -> None:
        """Connect; ``named_by`` is the topic's key in messages."""
        self._topic = topic
        self._condition = Condition()
        self._refusal: Refusal | None = None
        self._bytes = 0  # unacknowledged
        self.records = 0
        """Number of records handed over."""
        needed = NeededTopic(topic, named_by, max_bytes=max_bytes)
        outgoing = Outgoing(connection=connection, topic=needed, codec="zstd", linger_ms=_LINGER_MS)
        self._producer = open_producer(outgoing, self._on_ack, self._on_refusal)

    def write(
        self,
        key: bytes | None,
        value: bytes,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Hand a record over; ``flush`` waits for it. Without a partition the key decides.

        An error belongs to this record or to an earlier one.
        """
        self.records += 1
        size_bytes = len(value) + _RECORD_BYTES
        with self._condition:
            self._bytes += size_bytes
        record = TopicRecord(key, value, headers or [])
        handed = self._producer.send(record, partition, size_bytes)
        if handed is not Handed.QUEUED:
            raise self._refused("the record is too large")
        self._wait(_AHEAD_BYTES)

    def flush(self) -> None:
        """Wait until all records are acknowledged."""
        self._wait(0)

    def close(self) -> None:
        """Disconnect; may be called twice."""
        self._producer.close(1)

    def _on_ack(self, size_bytes: int) -> None:
        with self._condition:
            self._bytes -= size_bytes
            self._condition.notify_all()

    def _on_refusal(self, _tag: Any, refusal: Refusal) -> None:
        with self._condition:
            self._refusal = self._refusal or refusal
            self._condition.notify_all()

    def _wait(self, most_bytes: int) -> None:
        with self._condition:
            is_there = self._condition.wait_for(
                lambda: self._refusal is not None or self._bytes <= most_bytes, FLUSH_S
            )
            if self._refusal is not None:
                error = self._refusal.error
                raise self._refused(f"{type(error).__name__}: {error}") from error
        if not is_there:
            raise BrokerUnreachableError(
                f"topic {self._topic!r}: the brokers do not answer, and the last of "
                f"{self.records:,} records may be missing: start them and run again"
            )

    def _refused(self, reason: str) -> TopicError:
        return TopicError(
            f"topic {self._topic!r} refuses record {self.records:,} or one shortly before it "
            f"({reason}): see its max.message.bytes and the access rights, then run again",
            self._topic,
        )
