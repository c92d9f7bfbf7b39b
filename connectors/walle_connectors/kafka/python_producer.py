"""kafka-python's producer: the driver ``kafka-python``."""

from typing import Any

from kafka.errors import (
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from walle_connectors.kafka.connecting import close_producer, make_producer
from walle_connectors.kafka.producing import (
    Handed,
    OnAck,
    OnRefusal,
    Outgoing,
    Refusal,
    TopicRecord,
)
from walle_connectors.kafka.topics import check_topics
from walle_stream.errors import TopicError


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
        """Connect, and find the topic; blocks. ``is_careful`` sends each record alone.

        Raises:
            TopicError: The topic is missing, or has another number of partitions.
            BrokerUnreachableError: No broker answers.
            KafkaError: None answers in time.
        """
        self._outgoing, self._topic = outgoing, outgoing.name
        connection = outgoing.connection
        self._on_ack, self._on_refusal = on_ack, on_refusal
        self._is_careful = is_careful
        # a client asks for a missing topic without a pause
        check_topics(connection, [outgoing.topic])
        self._producer = make_producer(
            connection,
            outgoing.codec,
            outgoing.linger_ms,
            outgoing.topic.max_bytes,
            has_batches=not is_careful,
        )
        try:
            # so that sending never waits for it
            self._producer.partitions_for(self._topic)
        except KafkaError as error:
            close_producer(self._producer, 0)
            raise TopicError(
                f"topic {self._topic!r} cannot be found ({type(error).__name__}: {error}): walle "
                "topics FILE --create makes it",
                self._topic,
            ) from error

    def send(self, record: TopicRecord, partition: int | None, tag: Any) -> Handed:
        """Hand a record over; see ``Producer.send``.

        Raises:
            TopicError: The topic has no such partition.
        """
        try:
            future = self._producer.send(
                self._topic, record.value, record.key, record.headers, partition=partition
            )
        except MessageSizeTooLargeError:
            return Handed.TOO_LARGE
        except IllegalStateError:
            return Handed.HALTED
        except ValueError as error:
            raise self._outgoing.no_partition(partition, str(error)) from error
        future.add_callback(self._take_ack, tag)
        future.add_errback(self._take_error, tag)
        return Handed.QUEUED

    def _take_ack(self, tag: Any, _metadata: Any) -> None:
        self._on_ack(tag)

    def _take_error(self, tag: Any, error: Exception) -> None:
        # kafka-python cuts a batch down to the record that is too large, then fails all that
        # follow with the same error: only the first is meant
        is_too_large = isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError)
        # of a batch with such a record the others fail with a plain ``KafkaError``
        is_never_taken = isinstance(error, InvalidRecordError) or type(error) is KafkaError
        is_alone = self._is_careful or not is_never_taken
        self._on_refusal(tag, Refusal(error, is_too_large, is_never_taken, is_alone))

    def halt(self) -> None:
        """Send nothing any more; see ``Producer.halt``."""
        self._producer.halt()

    def close(self, timeout_s: float) -> None:
        """Wait a little, then drop the rest; see ``Producer.close``."""
        close_producer(self._producer, timeout_s)
