"""Positions in partitions of a topic, and the start of a partition without a position.

Offsets are stored in the partition's database with the state. The offsets that the group commits to
Kafka serve tools that show lag and are never used for reading.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from walle_connectors.kafka.source.model import MissingOffset
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.reading.offsets import Count, Position


class TopicPosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position of reading in a partition."""

    what: ClassVar[str] = "a Kafka topic"
    order = ("next", "part")

    next: Count
    """Kafka offset of the record to read next; all earlier records are counted."""
    part: Count = 0
    """Number of that record's events already delivered; the record is counted if above 0."""
    topic: str
    topic_id: str = ""
    """Changes when the topic is deleted and recreated; empty if unknown."""
    cluster: str = ""
    """Id of the cluster; empty if unknown."""
    end: int = -1
    """Offset at which reading ends (exclusive); negative for no end."""


class Bounds(msgspec.Struct, frozen=True):
    """Current bounds of a partition, as Kafka offsets."""

    begin: int
    """Offset of the oldest existing record."""
    end: int
    """Offset of the next record to be written."""
    start: int
    """Start of reading for a partition that was never read."""


def decode_positions(
    offsets: Mapping[int, bytes], topic: str, cluster: str
) -> dict[int, TopicPosition]:
    """Decode offsets by partition; ``cluster`` is empty if unknown.

    Raises:
        SourceError: An offset is damaged or belongs to another kind of source.
        SourceChangedError: An offset belongs to another topic or cluster.
    """
    found = {number: TopicPosition.decode(number, each) for number, each in offsets.items()}
    for number, each in found.items():
        is_other_cluster = cluster and each.cluster and each.cluster != cluster
        if each.topic != topic or is_other_cluster:
            raise SourceChangedError(
                f"the offset of partition {number} is of topic {each.topic!r} in cluster "
                f"{each.cluster!r}, not of {topic!r} in {cluster!r}: give the source of this data "
                "directory, or a new --data-dir"
            )
    return found


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for the start of partitions; no I/O."""

    topic: str
    topic_id: str
    cluster: str
    stops_at_end: bool
    on_missing: MissingOffset
    advice: str = (
        "give spec.source.onMissingOffset=earliest to continue with the remaining records, or "
        "latest to continue with new records"
    )
    """Advice to the user when records are missing and the policy is ``fail``."""

    def position(
        self, partition: int, stored: TopicPosition | None, bounds: Bounds, *, is_cut: bool = False
    ) -> TopicPosition:
        """Return the start of a partition with the position ``stored``, None if it was never read.

        ``is_cut`` means that the partition lost records after we read them.

        Raises:
            SourceError: The next record is missing, and the policy is ``fail``.
        """
        if stored is None:
            place, end, problem = bounds.start, -1, ""
        else:
            problem = self._problem(stored, bounds, is_cut=is_cut)
            place, end = self._place(partition, stored, bounds, problem), stored.end
            if problem and (end > bounds.end or self._is_other(stored)):
                end = -1  # the end does not exist, or belongs to another topic
            if stored.is_end and self.stops_at_end and place == stored.next:
                return stored
        if not self.stops_at_end:
            end = -1
        elif end < 0 or (stored is not None and (stored.is_end or end < place)):
            end = max(bounds.end, place)
        return TopicPosition(
            next=place,
            part=0 if stored is None or problem else stored.part,
            topic=self.topic,
            topic_id=self.topic_id,
            cluster=self.cluster,
            end=end,
        )

    def _place(self, partition: int, stored: TopicPosition, bounds: Bounds, problem: str) -> int:
        if not problem:
            return stored.next
        if self.on_missing == "fail":
            raise SourceError(
                f"{self.topic}[{partition}]: {problem}. Nothing was read: {self.advice}"
            )
        return bounds.begin if self.on_missing == "earliest" else bounds.end

    def _is_other(self, stored: TopicPosition) -> bool:
        return bool(stored.topic_id and self.topic_id and stored.topic_id != self.topic_id)

    def _problem(self, stored: TopicPosition, bounds: Bounds, *, is_cut: bool) -> str:
        if self._is_other(stored):
            return (
                f"the topic was recreated; reading stopped at offset {stored.next} of the old "
                f"topic, the new one has {bounds.begin} to {bounds.end}"
            )
        if stored.next < bounds.begin:
            return (
                f"{bounds.begin - stored.next} records are lost: reading stopped at offset "
                f"{stored.next}, and retention deleted everything before {bounds.begin}"
            )
        if stored.next > bounds.end:
            return (
                f"{stored.next - bounds.end} records that were read are gone: reading stopped at "
                f"offset {stored.next}, and the topic ends at {bounds.end}"
            )
        if is_cut:
            return (
                f"a broker lost records that were read: reading stopped at offset {stored.next}, "
                f"and some of the present records, {bounds.begin} to {bounds.end}, differ"
            )
        return ""
