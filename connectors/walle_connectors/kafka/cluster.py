"""Port for questions to a cluster; reading, groups and sending have ports of their own.

``python_cluster`` adapts kafka-python, ``confluent_cluster`` librdkafka; ``drivers`` chooses.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, Self

import msgspec

from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError

ASK_S: Final = 5.0
"""Longest wait for one answer."""

_ANSWER_MS: Final = 15_000.0
_AGAIN_S: Final = 0.1


class NeededTopic(msgspec.Struct, frozen=True):
    """A topic as a pipeline needs it."""

    name: str
    key: str
    """The YAML key that names the topic."""
    partitions: int = 0
    """Required number of partitions; 0 allows any number."""
    max_bytes: int = 0
    """Size of the largest record; 0 if unknown."""


class FoundTopic(msgspec.Struct, frozen=True):
    """A topic as the cluster has it."""

    partitions: int
    replicas: int
    settings: dict[str, str]
    """Values of the requested settings, by name."""
    leaderless: int = 0
    """Number of partitions without a leader at the moment."""
    is_hidden: bool = False
    """Whether access is denied, even to the topic's existence; all other fields are then empty."""

    @classmethod
    def hidden(cls) -> Self:
        """Return a topic to which this client has no access."""
        return cls(0, 0, {}, is_hidden=True)


class TopicIdentity(msgspec.Struct, frozen=True):
    """Identity of a topic, which tells it from another topic of the same name."""

    partition_count: int
    cluster: str
    topic_id: str
    """Empty if the brokers do not report topic ids."""


class Place(IntEnum):
    """The two ends of a partition, used in place of a time."""

    BEGIN = -2
    END = -1


class Cluster(Protocol):
    """A cluster with one watched topic. For one thread.

    Each call blocks for some seconds at most. It raises ``BrokerUnreachableError`` when no broker
    answers, and ``TopicError`` for a refusal, or ``SourceError`` if it is about the watched topic.
    """

    def brokers(self) -> int:
        """Return the number of brokers."""

    def describe(
        self, names: Collection[str], settings: Sequence[str] = ()
    ) -> dict[str, FoundTopic]:
        """Return the existing topics of ``names``, by name, with the values of ``settings``."""

    def create(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> None:
        """Create a missing topic and wait for its metadata; -1 is the cluster's default."""

    def grow(self, name: str, partitions: int, *, is_trial: bool) -> None:
        """Raise a topic to ``partitions``; a trial only validates the request."""

    def delete(self, name: str) -> None:
        """Delete a topic."""

    def members(self, group: str) -> int:
        """Return the number of members of a consumer group; 0 if the group does not exist."""

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return a group's committed offsets with their metadata, by partition."""

    # The watched topic

    def watch(
        self, model: KafkaSourceModel, metadata_ms: int, *, is_member: bool
    ) -> TopicIdentity | None:
        """Find a topic and notice its changes within ``metadata_ms``; None if it is missing.

        ``is_member`` prepares the client for joining the model's group.
        """

    @property
    def known(self) -> TopicIdentity:
        """The topic as the brokers last described it; does not block."""

    def look_again(self) -> None:
        """Refresh ``known`` now; it stays unchanged when no answer comes in some seconds."""

    def offsets(self, numbers: Collection[int], at_ms: int) -> dict[int, int]:
        """Return each partition's begin, end, or first offset at or after the time ``at_ms``.

        A ``Place`` as ``at_ms`` asks for begin or end. The offset is -1 if no record is as late.
        Records of open transactions lie after the end.
        """

    def close(self) -> None:
        """Disconnect; may be called twice."""


def answered[T](question: Callable[[], T]) -> T:
    """Repeat a question until a broker answers; blocks.

    A broker may come back, or may not know the coordinator yet.

    Raises:
        BrokerUnreachableError: No broker answered for 15 s.
    """
    deadline_ms = monotonic_ms() + _ANSWER_MS
    while True:
        try:
            return question()
        except BrokerUnreachableError:
            if monotonic_ms() >= deadline_ms:
                raise
            time.sleep(_AGAIN_S)
