"""Where snapshots of a partition go, so that another machine can go on with it."""

from pathlib import Path
from typing import Protocol

import msgspec


class SnapshotPoint(msgspec.Struct, frozen=True, order=True):
    """How far a partition's database is: a later one has more of its history."""

    epoch: int
    """Of the opening that wrote it."""
    commits: int


class SnapshotStore(Protocol):
    """The snapshots of one partition, reached by every machine. One thread at a time; blocks.

    Every method raises ``StoreError`` where the store cannot be used.
    """

    @property
    def newest(self) -> SnapshotPoint | None:
        """The highest epoch's latest snapshot, None where there is none."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last opening by anybody, 0 where there was none."""

    def own(self, epoch: int) -> None:
        """Say that the partition was opened, before anything is sent with the epoch."""

    def put(self, checkpoint: Path, point: SnapshotPoint, line: str) -> None:
        """Add a snapshot and remove what it replaces; those of before stay until it is whole.

        Args:
            checkpoint: A folder of files that nobody changes; it stays.
            point: Of the database when the copy was made.
            line: Of the database on its machine, through all its openings: one process at a
                time writes of a line. Tables (``*.sst``) that it has put already need not travel
                again.
        """

    def fetch(self, target: Path) -> SnapshotPoint | None:
        """Make a database from the newest snapshot; None where there is none, else where it is.

        What is at the target is replaced when all has come.

        Raises:
            StoreCorruptedError: A file was altered.
        """

    def incarnation(self, own: str) -> str:
        """Return whose devices the partition's are: what its first owner said.

        An owner that dies before its first snapshot leaves nothing but what it sent. Who
        begins anew behind it makes the same features with the same numbers, and they must
        not count as another's.

        Args:
            own: Of this machine's data directory; kept if nobody was here before.
        """
