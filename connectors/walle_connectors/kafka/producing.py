"""What the uplink asks of a client library, and kafka-python's way to do it.

``Producer`` is the port: an idempotent producer that waits for all replicas, keeps the
order of each partition and can be stopped before it sends what follows a failure.
``confluent_producer`` is librdkafka's.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kafka.errors import (
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from walle_connectors.kafka.connecting import close_producer, make_producer
from walle_connectors.kafka.topics import check_topics, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.tunnel_records import TopicRecord
from walle_stream.errors import TopicError


class Handed(Enum):
    """What became of a record that was handed to a producer."""

    QUEUED = "queued"
    """It is on its way: one of the callbacks follows."""
    TOO_LARGE = "too large"
    """It is larger than the model allows; nothing was sent of it."""
    HALTED = "halted"
    """The producer was halted before."""


class Refusal(NamedTuple):
    """Why a record failed for good."""

    error: Exception
    is_too_large: bool = False
    """The topic takes no record of its size, or no batch: see ``is_alone``."""
    is_alone: bool = True
    """Whether it is the record itself that is too large, and not what it was sent with."""


type OnAck = Callable[[Any], None]
"""Takes the tag of a record that the cluster has; runs in the producer's thread."""

type OnRefusal = Callable[[Any, Refusal], None]
"""Takes the tag of a record that failed; the first of a partition before those behind it."""


class Producer(Protocol):
    """Sends records of one topic. Made and used by one thread, but for ``halt``."""

    def send(self, record: TopicRecord, partition: int, tag: Any) -> Handed:
        """Hand a record over; does not wait for the broker.

        Raises:
            TopicError: The topic has no such partition.
        """

    def halt(self) -> None:
        """Send nothing any more; never blocks, and may be called in the callbacks."""

    def close(self, timeout_s: float) -> None:
        """Wait ``timeout_s`` at most for what is on its way, then drop the rest; blocks."""


class PythonProducer:
    """kafka-python's producer as a ``Producer``."""

    def __init__(
        self, model: KafkaTunnelModel, on_ack: OnAck, on_refusal: OnRefusal, partitions: int = 0
    ) -> None:
        """Connect, and find the topic; blocks. 0 partitions allow any number.

        Raises:
            TopicError: The topic is missing, or has another number of partitions.
            BrokerUnreachableError: No broker answers.
            KafkaError: None answers in time.
        """
        self._topic = model.topic
        self._on_ack, self._on_refusal = on_ack, on_refusal
        # a client asks for a missing topic without a pause
        check_topics(model, tunnel_topics(model, partitions)[:1])
        self._producer = make_producer(model, model.codec, model.linger_ms, model.max_bytes)
        try:
            # so that sending never waits for it
            self._producer.partitions_for(model.topic)
        except KafkaError as error:
            close_producer(self._producer, 0)
            raise TopicError(
                f"topic {model.topic!r} cannot be found ({type(error).__name__}: {error}): walle "
                "topics FILE --create makes it",
                model.topic,
            ) from error

    def send(self, record: TopicRecord, partition: int, tag: Any) -> Handed:
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
            text = no_partition(self._topic, partition, str(error))
            raise TopicError(text, self._topic) from error
        future.add_callback(self._take_ack, tag)
        future.add_errback(self._take_error, tag)
        return Handed.QUEUED

    def _take_ack(self, tag: Any, _metadata: Any) -> None:
        self._on_ack(tag)

    def _take_error(self, tag: Any, error: Exception) -> None:
        # kafka-python cuts a batch down to the record that is too large, then fails all that
        # follow with the same error: only the first is meant
        is_too_large = isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError)
        self._on_refusal(tag, Refusal(error, is_too_large))

    def halt(self) -> None:
        """Send nothing any more; see ``Producer.halt``."""
        self._producer.halt()

    def close(self, timeout_s: float) -> None:
        """Wait a little, then drop the rest; see ``Producer.close``."""
        close_producer(self._producer, timeout_s)


def no_partition(topic: str, partition: int, detail: str) -> str:
    """Say that a topic lacks a partition, with what the library or the cluster says."""
    return (
        f"topic {topic!r} has no partition {partition} ({detail}): it must have as many as the "
        "pipeline, see walle topics"
    )
