"""Writes records to a topic and knows which have arrived: for commands, not for pipelines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from walle_connectors.brokers import Connection
from walle_connectors.kafka.connecting import close_producer, make_producer
from walle_connectors.kafka.topics import NeededTopic, check_topics
from walle_stream.errors import BrokerUnreachableError, TopicError
from walle_stream.wire.headers import Headers

FLUSH_S: Final = 60.0
"""How long the brokers have to acknowledge what was written."""


class TopicWriter:
    """Records of one topic. One thread; blocks.

    A missing topic, or one that does not take a record, is a ``TopicError``; brokers that do not
    answer, or refuse TLS, are a ``BrokerUnreachableError``.
    """

    def __init__(
        self, connection: Connection, topic: str, *, max_bytes: int, named_by: str = "topic"
    ) -> None:
        """Connect; ``named_by`` names the topic in messages."""
        self._topic = topic
        # a producer would ask for a missing topic for a minute, or have the brokers make it
        check_topics(connection, [NeededTopic(topic, named_by)])
        self._failures: list[Exception] = []
        self.records = 0
        """That were handed over."""
        with self._errors():
            self._producer: Any = make_producer(connection, "zstd", 5, max_bytes)

    def write(
        self,
        key: bytes | None,
        value: bytes,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> None:
        """Hand a record over; ``flush`` waits for it. Without a partition the key decides.

        A failure is that of this record, or of one before it.
        """
        with self._errors():
            self.records += 1
            future = self._producer.send(
                self._topic, value, key, headers or [], partition=partition
            )
            future.add_errback(self._failures.append)
            self._expect_none()

    def flush(self) -> None:
        """Wait for everything that was written."""
        with self._errors():
            self._producer.flush(FLUSH_S)
            self._expect_none()

    def close(self) -> None:
        """Disconnect; may be called twice."""
        close_producer(self._producer, 1)

    def _expect_none(self) -> None:
        if self._failures:
            raise self._failures[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (KafkaTimeoutError, KafkaConnectionError) as error:
            raise BrokerUnreachableError(
                f"topic {self._topic!r}: the brokers do not answer ({error}): of {self.records:,} "
                "records the last may be missing; start them and run again"
            ) from error
        except (KafkaError, ValueError) as error:
            raise TopicError(
                f"topic {self._topic!r} does not take record {self.records:,} or one shortly "
                f"before it ({type(error).__name__}: {error}): see its max.message.bytes and the "
                "access rights, then run again",
                self._topic,
            ) from error
