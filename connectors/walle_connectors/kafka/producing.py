"""What a sender asks of a client library.

``Producer`` is the port: an idempotent producer that waits for all replicas, keeps the
order of each partition and can be stopped before it sends what follows a failure.
``python_producer`` is kafka-python's, ``confluent_producer`` librdkafka's.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

import msgspec

from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.tunnel_model import Codec, KafkaTunnelModel
from walle_stream.errors import TopicError
from walle_stream.wire.headers import Headers


class TopicRecord(NamedTuple):
    """One record."""

    key: bytes | None
    value: bytes
    headers: Headers


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is written to, and how."""

    connection: Connection
    topic: NeededTopic
    codec: Codec
    linger_ms: int = 0

    @classmethod
    def of(cls, model: KafkaTunnelModel, topic: NeededTopic) -> "Outgoing":
        """Return how a tunnel writes to one of its topics."""
        return cls(connection=model, topic=topic, codec=model.codec, linger_ms=model.linger_ms)

    @property
    def name(self) -> str:
        """The topic's."""
        return self.topic.name

    def no_partition(self, partition: int | None, detail: str) -> TopicError:
        """Return the error of a partition that the topic lacks, with what the cluster says."""
        return TopicError(
            f"topic {self.name!r} has no partition {partition} ({detail}): it must have as many as "
            "the pipeline, see walle topics",
            self.name,
        )

    @property
    def bytes_key(self) -> str:
        """The key of the YAML that bounds a record."""
        return self.topic.key.rpartition(".")[0] + ".maxBytes"


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
    is_never_taken: bool = False
    """The topic never takes the record as it is, or one of its batch."""
    is_alone: bool = True
    """Whether it is the record itself, and not what it was sent with."""


type OnAck = Callable[[Any], None]
"""Takes the tag of a record that the cluster has; runs in the producer's thread."""

type OnRefusal = Callable[[Any, Refusal], None]
"""Takes the tag of a record that failed; the first of a partition before those behind it."""


class Producer(Protocol):
    """Sends records of one topic. Made and used by one thread, but for ``halt``."""

    def send(self, record: TopicRecord, partition: int | None, tag: Any) -> Handed:
        """Hand a record over, without a partition to that of its key; does not wait for the broker.

        Raises:
            TopicError: The topic has no such partition.
            BrokerUnreachableError: The library has lost its way: another producer is to be made.
        """

    def halt(self) -> None:
        """Send nothing any more; never blocks, and may be called in the callbacks."""

    def close(self, timeout_s: float) -> None:
        """Wait ``timeout_s`` at most for what is on its way, then drop the rest; blocks."""
