"""The cloud side's decision what is new: pure, on state that commits with it.

A partition's highest epoch fences its former owners. A device's records count
from 1 per incarnation (a reinstalled device starts again and must not be
swallowed); what was seen is dropped, a gap is counted and let through.
"""

from enum import Enum

import msgspec


class Verdict(Enum):
    """What to do with a record."""

    NEW = "new"
    SEEN = "seen"
    GAP = "gap"
    """New, but records before it are missing."""


class DeviceSeen(msgspec.Struct, array_like=True):
    """What was seen of a device: last contiguous number per incarnation."""

    incarnations: list[str] = []
    """In the order of first arrival: the index is the generation."""
    last_numbers: list[int] = []

    def last(self, incarnation: str) -> int:
        """Return the number of the last record of an incarnation; 0 for none."""
        if incarnation not in self.incarnations:
            return 0
        return self.last_numbers[self.incarnations.index(incarnation)]

    def judge(self, incarnation: str, sequence_number: int) -> tuple[Verdict, int]:
        """Judge a record, remember a new one; return its incarnation's generation, too."""
        if incarnation in self.incarnations:
            generation = self.incarnations.index(incarnation)
        else:
            generation = len(self.incarnations)
            self.incarnations.append(incarnation)
            self.last_numbers.append(0)
        last = self.last_numbers[generation]
        if sequence_number <= last:
            return Verdict.SEEN, generation
        self.last_numbers[generation] = sequence_number
        return (Verdict.NEW if sequence_number == last + 1 else Verdict.GAP), generation


class Fence:
    """The highest epoch seen of each partition."""

    def __init__(self, epochs: dict[tuple[str, int], int] | None = None) -> None:
        """Start with stored epochs, by (incarnation, partition)."""
        self.epochs = dict(epochs or {})

    def admits(self, incarnation: str, partition: int, epoch: int) -> bool:
        """Say whether a frame's sender still owns its partition; remembers the highest epoch."""
        key = (incarnation, partition)
        if epoch < self.epochs.get(key, 0):
            return False
        self.epochs[key] = epoch
        return True


class MergeCounts(msgspec.Struct):
    """What the cloud side merged, cumulative."""

    features: int = 0
    devices: int = 0
    """Devices with at least one feature."""
    duplicates_dropped: int = 0
    gaps: int = 0
    frames: int = 0
    calls: int = 0
    """Of services, by devices."""
    frames_refused: int = 0
    """Of an older epoch, or malformed."""
    missing_features: int = 0
    """In the gaps; one that is sent again later is missing no more."""
    missing_frames: int = 0
    """Numbers of frames that were passed over, of a partition."""
    differing_features: int = 0
    """That replaced another one of their number: their device had forgotten in a power cut that
    it made that one."""
    told: int = 0
    """Of ``losses``, how many were reported; noted behind the report."""

    @property
    def losses(self) -> int:
        """All that is missing, and cannot be sent again as far as is known here."""
        return self.missing_features + self.missing_frames + self.differing_features
