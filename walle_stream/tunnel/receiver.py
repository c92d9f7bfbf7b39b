"""The cloud side's detection of new records: pure, with state that commits with them.

A partition's highest epoch fences its former owners. A device's records count from
1 per incarnation, because a reinstalled device starts again and its records must not
be dropped. A repeated record is dropped. A gap is counted, and its record is kept.
"""

from collections.abc import Iterable
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from walle_stream.wire.frame import FeatureRecord

SENDER_PREFIX: Final = b"\x01"

_SENDER: Final = Struct(">QQ")


class Verdict(Enum):
    """Decision about a record."""

    NEW = "new"
    SEEN = "seen"
    GAP = "gap"
    """New, but records before it are missing."""


class DeviceSeen(msgspec.Struct, array_like=True):
    """Known records of a device: the last number per incarnation."""

    incarnations: list[str] = []
    """Incarnations in the order of first arrival; the index is the generation."""
    last_numbers: list[int] = []

    def last(self, incarnation: str) -> int:
        """Return the number of the last record of an incarnation; 0 for none."""
        if incarnation not in self.incarnations:
            return 0
        return self.last_numbers[self.incarnations.index(incarnation)]

    def judge(self, incarnation: str, sequence_number: int) -> tuple[Verdict, int]:
        """Judge a record and remember a new one; return also its incarnation's generation."""
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

    def take(self, generation: int, record: FeatureRecord, *, is_gap: bool) -> int:
        """Count a new feature if not all features are kept; return its task's number of rows.

        ``generation`` is the index of its incarnation. ``is_gap`` means that numbers before it are
        missing.
        """
        del generation, record, is_gap
        return 0


class SenderSeen(NamedTuple):
    """Known state of a sender: a partition of a data directory."""

    epoch: int = 0
    """The highest epoch."""
    frame: int = 0
    """Number of the last frame; 0 for none, and for records without frames."""


class Senders:
    """Known states of all senders, by (incarnation, partition), for fencing."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Start with stored rows, as ``row`` returned them."""
        self._seen: dict[tuple[str, int], SenderSeen] = {}
        for key, row in rows:
            sender = key[1:-4].decode(), int.from_bytes(key[-4:])
            self._seen[sender] = SenderSeen(*_SENDER.unpack(row))

    def seen(self, incarnation: str, partition: int) -> SenderSeen:
        """Return the known state of a sender."""
        return self._seen.get((incarnation, partition), _NOTHING)

    def admits(self, incarnation: str, partition: int, epoch: int, frame: int = 0) -> bool:
        """Return whether a sender still owns its partition, and remember its frame if so.

        ``frame`` is the frame's number, if the transport has frames.
        """
        known = self.seen(incarnation, partition)
        if epoch < known.epoch:
            return False
        self._seen[incarnation, partition] = SenderSeen(epoch, max(frame, known.frame))
        return True

    def row(self, incarnation: str, partition: int) -> tuple[bytes, bytes]:
        """Return key and value of a sender's row."""
        key = SENDER_PREFIX + incarnation.encode() + partition.to_bytes(4)
        return key, _SENDER.pack(*self.seen(incarnation, partition))


_NOTHING: Final = SenderSeen()


class MergeCounts(msgspec.Struct):
    """Cumulative counts of the cloud side's merges."""

    features: int = 0
    devices: int = 0
    """Devices with at least one feature."""
    duplicates_dropped: int = 0
    gaps: int = 0
    frames: int = 0
    calls: int = 0
    """Calls of services by devices."""
    frames_refused: int = 0
    """Frames of an older epoch, and malformed ones."""
