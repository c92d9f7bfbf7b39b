"""Sinks of merged features besides the cloud side's table."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

_PART_BYTES: Final = 8 * 1024 * 1024


class MergedFeature(msgspec.Struct, array_like=True, gc=False):
    """A feature merged by the cloud side."""

    number: int
    """Number in its lane, ascending, with holes; the same for every repetition."""
    incarnation: str
    """Incarnation of the device's data directory."""
    device_id: str
    task: str
    task_version: str
    sequence_number: int
    """Number of the device's feature, contiguous from 1 per incarnation."""
    feature: bytes
    """JSON object."""
    encoding: bytes
    event_time_ms: int
    """Time on the device's clock; -1 if unknown."""


def first_part(features: Iterator[MergedFeature], most: int = 1_000) -> list[MergedFeature]:
    """Take up to ``most`` features, fewer if they are large; none only at the end."""
    part: list[MergedFeature] = []
    left = _PART_BYTES
    while left > 0 and len(part) < most and (feature := next(features, None)) is not None:
        part.append(feature)
        left -= len(feature.feature) + len(feature.encoding)
    return part


class Written(NamedTuple):
    """Result of a write to a sink."""

    behind: int
    """Features with lower numbers than this are durable in the sink."""
    place: int
    """Features from this number on must come again; at most ``behind``."""


class FeatureSink(Protocol):
    """A sink of merged features, for its pump's thread; blocks.

    Features of a lane come in its order. Some come again after a crash, or if two processes both
    believe to own a lane. Each feature must be in the sink once.
    """

    pause_s: float
    """Shortest time between two writes of a lane with less than a whole part."""

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write at least one of the features, of which there is at least one.

        Args:
            lane: Source of the numbers: a partition of a topic, or a data directory.
            features: Features in ascending numbers, from the last call's ``place`` on.

        Raises:
            SinkError: No feature counts as written, and all come again.
        """

    def close(self) -> None:
        """Release files and connections; may be called twice."""
