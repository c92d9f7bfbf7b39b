"""Where merged features go beside the cloud side's table."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

_PART_BYTES: Final = 8 * 1024 * 1024


class MergedFeature(msgspec.Struct, array_like=True, gc=False):
    """A feature as the cloud side merged it."""

    number: int
    """Of its lane, ascending, with holes; the same whenever the feature comes again."""
    incarnation: str
    """Of the device's data directory."""
    device_id: str
    task: str
    task_version: str
    sequence_number: int
    """Of the device, contiguous from 1 per incarnation."""
    feature: bytes
    """JSON object."""
    encoding: bytes
    event_time_ms: int
    """On the device's clock; -1 where it is not known."""


def first_part(features: Iterator[MergedFeature], most: int = 1_000) -> list[MergedFeature]:
    """Take up to ``most`` features off, fewer where they are large; empty at the end alone."""
    part: list[MergedFeature] = []
    left = _PART_BYTES
    while left > 0 and len(part) < most and (feature := next(features, None)) is not None:
        part.append(feature)
        left -= len(feature.feature) + len(feature.encoding)
    return part


class Written(NamedTuple):
    """What a sink did."""

    behind: int
    """Features up to here, this number excluded, are in the sink: durable."""
    place: int
    """Features from here on shall come again; at most ``behind``."""


class FeatureSink(Protocol):
    """Where merged features go. One thread, that of its pump; blocks.

    Features of a lane come in its order. After a death, or where two processes both believe that a
    lane is theirs, some come again: each must be in the sink once.
    """

    pause_s: float
    """Shortest time between two writes of a lane that has less than a whole part."""

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write some of the features, at least one; there is one.

        Args:
            lane: What numbers them: a partition of a topic, or a data directory.
            features: Ascending, from the place that the last call returned.

        Raises:
            SinkError: None of them counts as written; they come again.
        """

    def close(self) -> None:
        """Release files and connections; may be called twice."""
