"""The cloud side's decision what is new: pure, on state that commits with it.

A partition's highest epoch fences its former owners. A device's records count
from 1 per incarnation (a reinstalled device starts again and must not be
swallowed); what was seen is dropped, a gap is counted and let through.
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

    def take(self, generation: int, record: FeatureRecord, *, is_gap: bool) -> int:
        """Count a new feature where not all stay, and return how many rows its task has with it.

        ``generation`` is the index of its incarnation; ``is_gap`` where numbers before it are
        missing.
        """
        del generation, record, is_gap
        return 0


class SenderSeen(NamedTuple):
    """What was seen of the partition of a data directory."""

    epoch: int = 0
    """The highest one."""
    frame: int = 0
    """Number of the last one; 0 for none, and for what comes without frames."""


class Senders:
    """What was seen of all senders, by (incarnation, partition); fences them."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Start with what ``row`` gave."""
        self._seen: dict[tuple[str, int], SenderSeen] = {}
        for key, row in rows:
            sender = key[1:-4].decode(), int.from_bytes(key[-4:])
            self._seen[sender] = SenderSeen(*_SENDER.unpack(row))

    def seen(self, incarnation: str, partition: int) -> SenderSeen:
        """Return what was seen of a sender."""
        return self._seen.get((incarnation, partition), _NOTHING)

    def admits(self, incarnation: str, partition: int, epoch: int, frame: int = 0) -> bool:
        """Say whether the sender of what came still owns its partition; remembers what it admits.

        ``frame`` is the frame's number, where frames come.
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
