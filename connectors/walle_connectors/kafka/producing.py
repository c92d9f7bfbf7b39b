"""Port of client libraries for sending.

A ``Producer`` is idempotent, waits for all replicas and keeps the order of each partition. It can
be halted before it sends the records after a failure. ``python_producer`` implements it with
kafka-python, ``confluent_producer`` with librdkafka.
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
    """A record of a topic."""

    key: bytes | None
    value: bytes
    headers: Headers


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to write to, with the settings of its producer."""

    connection: Connection
    topic: NeededTopic
    codec: Codec
    linger_ms: int = 0

    @classmethod
    def of(cls, model: KafkaTunnelModel, topic: NeededTopic) -> "Outgoing":
        """Return the settings with which a tunnel writes to one of its topics."""
        return cls(connection=model, topic=topic, codec=model.codec, linger_ms=model.linger_ms)

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self.topic.name

    def no_partition(self, partition: int | None, detail: str) -> TopicError:
        """Return the error for a missing partition; ``detail`` is the cluster's text."""
        return TopicError(
            f"topic {self.name!r} has no partition {partition} ({detail}): topic and pipeline must "
            "have the same number of partitions, see walle topics",
            self.name,
        )

    @property
    def bytes_key(self) -> str:
        """The YAML key that limits the size of a record."""
        return self.topic.key.rpartition(".")[0] + ".maxBytes"


class Handed(Enum):
    """Outcome of handing a record to a producer."""

    QUEUED = "queued"
    """The producer has the record, and one of the callbacks will follow."""
    TOO_LARGE = "too large"
    """The record is larger than the model allows and was not sent."""
    HALTED = "halted"
    """The producer was halted and took no record."""


class Refusal(NamedTuple):
    """The reason why a record failed for good."""

    error: Exception
    is_too_large: bool = False
    """The record, or its batch, is too large for the topic; see ``is_alone``."""
    is_never_taken: bool = False
    """The topic never takes this record, or another record of its batch."""
    is_alone: bool = True
    """Whether the record itself is at fault, and not another record of its batch."""


type OnAck = Callable[[Any], None]
"""Takes the tag of an acknowledged record; runs in the producer's thread."""

type OnRefusal = Callable[[Any, Refusal], None]
"""Takes the tag of a failed record; a partition's records fail in their order."""


class Producer(Protocol):
    """Producer for one topic. For the thread that created it, except ``halt``."""

    def send(self, record: TopicRecord, partition: int | None, tag: Any) -> Handed:
        """Hand a record over without waiting for the broker.

        Without a partition, the record goes to the partition of its key.

        Raises:
            TopicError: The topic has no such partition.
            BrokerUnreachableError: The library is stuck; make another producer.
        """

    def halt(self) -> None:
        """Stop sending; never blocks, and callbacks may call it."""

    def close(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` for records in flight, then drop the rest; blocks."""
