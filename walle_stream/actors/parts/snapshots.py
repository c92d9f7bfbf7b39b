"""Updates of a partition's snapshots beside its turns."""

import logging
import shutil
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.errors import StoreError
from walle_stream.store.copies import SnapshotCopies
from walle_stream.store.files import make_folder, put_file
from walle_stream.store.snapshots import ANY_EPOCH, PartitionSnapshots, SnapshotPoint

_log = logging.getLogger(__name__)


class SnapshotKeeper(Part):
    """Snapshots of one partition; after all other parts, as it copies commits."""

    _rows: PartitionRows

    def __init__(self, snapshots: PartitionSnapshots, uploads: Executor, every_ms: float) -> None:
        """Begin; see ``SnapshotCopies``."""
        self.snapshots = snapshots
        self._copies = SnapshotCopies(snapshots, uploads, every_ms)
        self._commits = self._next_frame = 0
        self._has_sent = False  # whether the last commit made frames

    def take_over(self, path: Path, own_epoch: int, epochs: range = ANY_EPOCH) -> int:
        """Claim a partition; take the newest snapshot if another host has owned it since. Blocks.

        If that owner left no snapshot, the partition starts empty, as it did there: the local
        database is put aside.

        Args:
            path: The database's folder, closed.
            own_epoch: Epoch of its last opening; 0 without a database.
            epochs: Epochs that its placement allows.

        Returns:
            The claimed epoch.

        Raises:
            EpochTakenError: A later placement has the partition.
            StoreError: The partition cannot be claimed, fetched or put aside.
        """
        newest = self._copies.prepare(path)
        claim = path.with_name(f"{path.name}.claim")
        is_own = self.snapshots.last_epoch <= own_epoch or (
            # a process died after its claim, without sending anything
            claim.exists()
            and claim.read_bytes() == self.snapshots.last_claim
            # the operator may have removed a database
            and (own_epoch or newest is None)
        )
        if is_own:
            return self.claim(path, own_epoch, epochs)
        epoch = self.snapshots.own(epochs, own_epoch)
        point = self.snapshots.fetch(path)
        if point is not None:
            _log.info("%s was restored from the snapshot %s", path, point)
        elif own_epoch:
            put_aside(path, str(own_epoch))
            _log.warning("%s starts empty: its last owner left no snapshot", path)
        return epoch

    def claim(self, path: Path, above: int, epochs: range = ANY_EPOCH) -> int:
        """Claim a partition whose local database is as new as its last owner's; blocks.

        Returns an epoch above ``above``; see ``PartitionSnapshots.own``.
        """
        note = partial(_note, path.with_name(f"{path.name}.claim"))
        return self.snapshots.own(epochs, above, note)

    def restart(self, opening: Opening) -> None:
        """Start copying the opened database."""
        self._rows, self._commits = opening.rows, opening.head.counters.commits
        self._has_sent, self._next_frame = False, opening.head.next_frame
        self._copies.on_kept = self._rows.kept

    def idle(self, turn: Turn) -> bool:  # noqa: ARG002 - part signature
        """Request a commit when a snapshot is due and the last commit has sent frames."""
        return self._has_sent and self._copies.is_due

    def committed(self, turn: Turn) -> None:
        """Make a snapshot if one is due; runs between two turns."""
        self._commits += turn.is_written  # the head does not count final commits
        next_frame = turn.head.next_frame
        self._has_sent, self._next_frame = next_frame != self._next_frame, next_frame
        self._copies.committed(self._rows.path, self._rows.checkpoint, self._point)

    def close(self, deadline_ms: float | None) -> None:
        """Make the last snapshot; blocks until the deadline, but a longer upload continues."""
        if deadline_ms is not None:
            rows = self._rows
            self._copies.close(rows.path, rows.checkpoint, self._point, deadline_ms)

    @property
    def _point(self) -> SnapshotPoint:
        return SnapshotPoint(self._rows.epoch, self._commits)


def put_aside(path: Path, label: str) -> Path:
    """Rename a database with a label and return the new path, replacing a former one.

    Raises:
        StoreError: The disk refuses the change.
    """
    aside = path.with_name(f"{path.name}.aside-{label}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    except OSError as error:
        raise StoreError(f"{path} cannot be put aside: {error}") from error
    return aside


def _note(path: Path, token: bytes) -> None:
    try:
        make_folder(path.parent)
        put_file(path, token)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
