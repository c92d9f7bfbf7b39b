"""What a cluster is asked beside records, groups and sending, with one adapter for each library.

``python_cluster`` is kafka-python's, ``confluent_cluster`` librdkafka's; ``drivers`` chooses.
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
    """What a pipeline needs."""

    name: str
    key: str
    """Where the YAML names it."""
    partitions: int = 0
    """0: any number."""
    max_bytes: int = 0
    """Largest record; 0 where it is not known."""


class FoundTopic(msgspec.Struct, frozen=True):
    """What the cluster has."""

    partitions: int
    replicas: int
    settings: dict[str, str]
    """Of those that were asked for, by their names."""
    leaderless: int = 0
    """Partitions that nobody leads at the moment."""
    is_hidden: bool = False
    """Whether we may not look at it, nor learn whether it is there; all else is then empty."""

    @classmethod
    def hidden(cls) -> Self:
        """Return one that we may not look at."""
        return cls(0, 0, {}, is_hidden=True)


class TopicIdentity(msgspec.Struct, frozen=True):
    """What tells a topic from another one of its name."""

    partition_count: int
    cluster: str
    topic_id: str
    """Empty where the brokers do not say."""


class Place(IntEnum):
    """Where a partition begins and ends, in place of a time."""

    BEGIN = -2
    END = -1


class Cluster(Protocol):
    """A cluster, and one topic of it that is watched. One thread.

    Each question blocks for some seconds at most. No answer is a ``BrokerUnreachableError``, a
    refusal a ``TopicError``, and a ``SourceError`` where the watched topic is asked about.
    """

    def brokers(self) -> int:
        """Return how many brokers there are."""

    def describe(
        self, names: Collection[str], settings: Sequence[str] = ()
    ) -> dict[str, FoundTopic]:
        """Return the topics that are there, by their names, with some settings of theirs."""

    def create(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> None:
        """Make a topic, unless it is there; -1 is the cluster's default. Metadata know it then."""

    def grow(self, name: str, partitions: int, *, is_trial: bool) -> None:
        """Raise a topic to ``partitions``; a trial only asks whether the cluster would."""

    def delete(self, name: str) -> None:
        """Delete a topic."""

    def members(self, group: str) -> int:
        """Return how many members a consumer group has; 0 where there is none."""

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return a group's offsets and what stands beside them, by partition."""

    # The watched topic

    def watch(
        self, model: KafkaSourceModel, metadata_ms: int, *, is_member: bool
    ) -> TopicIdentity | None:
        """Find a topic, and be told within ``metadata_ms`` of what it becomes; None: not there.

        ``is_member`` is for joining its group.
        """

    @property
    def known(self) -> TopicIdentity:
        """The topic as the brokers told of it last; asks nobody."""

    def look_again(self) -> None:
        """Ask for it now; what is not answered in some seconds stays as it was."""

    def offsets(self, numbers: Collection[int], at_ms: int) -> dict[int, int]:
        """Return where its partitions begin or end, or their first record as late as ``at_ms``.

        ``Place`` stands for the first two; -1 where nothing is as late. What is of transactions
        that are not committed is behind the end.
        """

    def close(self) -> None:
        """Disconnect; may be called twice."""


def answered[T](question: Callable[[], T]) -> T:
    """Ask until there is an answer: a broker may return, or not know of a coordinator yet; blocks.

    Raises:
        BrokerUnreachableError: There was none for 15 s.
    """
    deadline_ms = monotonic_ms() + _ANSWER_MS
    while True:
        try:
            return question()
        except BrokerUnreachableError:
            if monotonic_ms() >= deadline_ms:
                raise
            time.sleep(_AGAIN_S)
