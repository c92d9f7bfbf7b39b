"""kafka-python's producer: the driver ``kafka-python``."""

from typing import Any, Final, override

from kafka.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from kafka import KafkaProducer
from walle_connectors.brokers import Connection
from walle_connectors.kafka.producing import (
    Handed,
    OnAck,
    OnRefusal,
    Outgoing,
    Refusal,
    TopicRecord,
)
from walle_connectors.kafka.python_client import login_refusal
from walle_connectors.kafka.topics import check_topics
from walle_stream.errors import BrokerUnreachableError, TopicError

BOOTSTRAP_MS: Final = 5_000
"""Longest wait of a client for its first answer."""

# practically no timeout: the outbox keeps every record until its acknowledgement anyway
_DELIVERY_MS: Final = 2**31 - 1
_TRANSACTION_MS: Final = 30_000


class StoppableProducer(KafkaProducer):  # type: ignore[misc]
    """A producer that stops at once; kafka-python's own flushes first."""

    is_halted = False

    @override
    def flush(self, timeout: float | None = None) -> None:
        if not self.is_halted:
            super().flush(timeout)

    def halt(self) -> None:
        """Stop sending; never blocks, and callbacks may call it.

        Unsent records fail after this method returns.
        """
        self.is_halted = True
        self.close(timeout=0)


def make_producer(
    connection: Connection,
    codec: str,
    linger_ms: int,
    max_bytes: int,
    transactional_id: str | None = None,
    *,
    has_batches: bool = True,
) -> StoppableProducer:
    """Make an idempotent producer that waits for all replicas; blocks.

    ``linger_ms`` is the longest wait for more records of a batch, ``max_bytes`` the largest record.
    With ``transactional_id`` the producer uses transactions, which time out without a broker.
    Without ``has_batches`` each record is sent alone.

    Raises:
        KafkaError: No broker answers in time.
    """
    return StoppableProducer(
        **connection.client_options(),
        metrics_enabled=False,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=linger_ms,
        batch_size=min(max_bytes, 256 * 1024) if has_batches else 0,
        max_request_size=max_bytes,
        max_block_ms=2_000 if transactional_id is None else _TRANSACTION_MS,
        request_timeout_ms=10_000,
        delivery_timeout_ms=_DELIVERY_MS if transactional_id is None else _TRANSACTION_MS,
        transactional_id=transactional_id,
        allow_auto_create_topics=False,
        bootstrap_timeout_ms=BOOTSTRAP_MS,
    )


def close_producer(producer: StoppableProducer, timeout_s: float) -> None:
    """Close a producer even if no broker answers; blocks for ``timeout_s`` at most.

    Records still unsent are dropped; they fail a little later in the producer's thread.
    """
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:
        producer.halt()


class PythonProducer:
    """kafka-python's producer as a ``Producer``."""

    def __init__(
        self,
        outgoing: Outgoing,
        on_ack: OnAck,
        on_refusal: OnRefusal,
        *,
        is_careful: bool = False,
    ) -> None:
        """Connect and find the topic; blocks. ``is_careful`` sends each record alone.

        Raises:
            TopicError: The topic is missing, or has another number of partitions.
            BrokerUnreachableError: No broker answers.
        """
        self._outgoing, self._topic = outgoing, outgoing.name
        connection = outgoing.connection
        self._on_ack, self._on_refusal = on_ack, on_refusal
        self._is_careful = is_careful
        # checked first, since a client asks for a missing topic without a pause
        check_topics(connection, [outgoing.topic])
        try:
            self._producer = make_producer(
                connection,
                outgoing.codec,
                outgoing.linger_ms,
                outgoing.topic.max_bytes,
                has_batches=not is_careful,
            )
        except KafkaError as error:
            refusal = login_refusal(connection)
            raise connection.no_answer(refusal or error, is_login=bool(refusal)) from error
        try:
            # fetch the metadata now, so that sending never waits for them
            self._producer.partitions_for(self._topic)
        except KafkaError as error:
            close_producer(self._producer, 0)
            raise TopicError(
                f"topic {self._topic!r} cannot be found ({type(error).__name__}: {error}): create "
                "it by walle topics FILE --create",
                self._topic,
            ) from error

    def send(self, record: TopicRecord, partition: int | None, tag: Any) -> Handed:
        """Hand a record over; see ``Producer.send``.

        Raises:
            TopicError: The topic has no such partition.
            BrokerUnreachableError: The library cannot take the record.
        """
        try:
            future = self._producer.send(
                self._topic, record.value, record.key, record.headers, partition=partition
            )
        except MessageSizeTooLargeError:
            return Handed.TOO_LARGE
        except IllegalStateError:
            return Handed.HALTED
        except KafkaError as error:
            text = f"topic {self._topic!r}: {type(error).__name__}: {error}"
            raise BrokerUnreachableError(text) from error
        except ValueError as error:
            raise self._outgoing.no_partition(partition, str(error)) from error
        future.add_callback(self._take_ack, tag)
        future.add_errback(self._take_error, tag)
        return Handed.QUEUED

    def _take_ack(self, tag: Any, _metadata: Any) -> None:
        self._on_ack(tag)

    def _take_error(self, tag: Any, error: Exception) -> None:
        # kafka-python splits a batch down to the record that is too large, then fails all later
        # records with the same error: only the first is at fault
        is_too_large = isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError)
        # the other records of such a batch fail with a plain ``KafkaError``
        is_never_taken = isinstance(error, InvalidRecordError) or type(error) is KafkaError
        is_alone = self._is_careful or not is_never_taken
        self._on_refusal(tag, Refusal(error, is_too_large, is_never_taken, is_alone))

    def halt(self) -> None:
        """Stop sending; see ``Producer.halt``."""
        self._producer.halt()

    def close(self, timeout_s: float) -> None:
        """Wait a little, then drop the rest; see ``Producer.close``."""
        close_producer(self._producer, timeout_s)
