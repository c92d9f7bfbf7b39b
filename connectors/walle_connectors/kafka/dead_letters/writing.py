"""Writes records to a topic and knows which have arrived: for commands, not for pipelines."""

from threading import Lock
from typing import Any, Final

from kafka.errors import KafkaError

from walle_connectors.brokers import Connection
from walle_connectors.kafka.connecting import close_producer, make_producer
from walle_connectors.kafka.source.reaching import expect_broker
from walle_stream.errors import TopicError, WalleError
from walle_stream.wire.headers import Headers

FLUSH_S: Final = 60.0
"""How long the brokers have to acknowledge what was written."""

_CONNECT_MS: Final = 10_000


class TopicWriter:
    """Records of one topic. One thread; blocks.

    A missing topic, or one that does not take a record, is a ``TopicError``.
    """

    def __init__(self, connection: Connection, topic: str, max_bytes: int) -> None:
        """Connect; no answer, or refused TLS, is a ``BrokerUnreachableError``."""
        self._topic = topic
        expect_broker(connection, _CONNECT_MS)
        self._lock = Lock()
        self._failure: Exception | None = None
        try:
            self._producer: Any = make_producer(connection, "zstd", 5, max_bytes)
        except KafkaError as error:
            raise self._refused(error) from error
        try:
            self._producer.partitions_for(topic)
        except KafkaError as error:
            self.close()
            raise self._refused(error) from error

    def write(
        self, key: bytes | None, value: bytes, headers: Headers, partition: int | None = None
    ) -> None:
        """Hand a record over; ``flush`` waits for it. Without a partition the key decides.

        Raises:
            TopicError: The topic does not take it.
        """
        try:
            future = self._producer.send(self._topic, value, key, headers, partition=partition)
        except (KafkaError, ValueError) as error:
            raise self._refused(error) from error
        future.add_errback(self._fail)

    def flush(self) -> None:
        """Wait for everything that was written.

        Raises:
            TopicError: Something of it did not arrive.
        """
        try:
            self._producer.flush(FLUSH_S)
        except KafkaError as error:
            raise self._refused(error) from error
        with self._lock:
            failure = self._failure
        if failure is not None:
            raise self._refused(failure) from failure

    def close(self) -> None:
        """Disconnect; may be called twice."""
        close_producer(self._producer, 1)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._failure = self._failure or error

    def _refused(self, error: Exception) -> WalleError:
        return TopicError(
            f"topic {self._topic!r} does not take records ({type(error).__name__}: {error}): see "
            "that it exists, its max.message.bytes and the access rights, then run again",
            self._topic,
        )
