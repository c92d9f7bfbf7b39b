"""Keeps a partition's snapshots up to date beside its turns.

The copy is made between two turns, which blocks for some milliseconds; it travels in a
thread of its own. A snapshot that cannot be written is said and tried again later: the
partition's own database has everything.
"""

import logging
import math
import shutil
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Final

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.clock import monotonic_ms
from walle_stream.errors import StoreError
from walle_stream.ports import SnapshotPoint, SnapshotStore
from walle_stream.store.snapshots import line_of

_log = logging.getLogger(__name__)

_COPY: Final = "checkpoint"
"""What copies are named; those of a process that died are removed by the next owner."""


class SnapshotKeeper(Part):
    """Snapshots of one partition; behind all other parts: it copies what was committed."""

    _rows: PartitionRows

    def __init__(self, snapshots: SnapshotStore, uploads: Executor, every_ms: float) -> None:
        """Begin.

        Args:
            snapshots: Where they go.
            uploads: One thread, shared by the partitions of a process.
            every_ms: Shortest time between two.
        """
        self.snapshots = snapshots
        self._uploads = uploads
        self._every_ms = every_ms
        self._last_ms = monotonic_ms()
        self._commits, self._last_commits = 0, -1
        self._upload: Future[None] | None = None

    def fetch(self, path: Path, own_epoch: int) -> bool:
        """Take the newest snapshot if somebody else owned the partition since; blocks.

        Where he left none, this owner begins anew, too, as he did: the database is put aside.

        Args:
            path: The database's folder, closed.
            own_epoch: Of its last opening, 0 where there is none.

        Returns:
            Whether the database was replaced.

        Raises:
            StoreError: It cannot be fetched, or put aside.
        """
        for left in path.parent.glob(f"{path.name}.{_COPY}-*"):
            shutil.rmtree(left, ignore_errors=True)
        newest = self.snapshots.newest
        if newest is None:
            self._last_ms = -math.inf  # the first commit makes the first
        last = max(self.snapshots.last_epoch, newest.epoch if newest else 0)
        if last <= own_epoch:
            return False
        point = self.snapshots.fetch(path)
        if point is not None:
            _log.info("%s was taken over from the snapshot %s", path, point)
        elif own_epoch:
            aside = path.with_name(f"{path.name}.aside-{own_epoch}")
            try:
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
            except OSError as error:
                raise StoreError(f"{path} cannot be put aside: {error}") from error
            _log.warning("%s begins anew: its last owner left no snapshot", path)
        return point is not None or own_epoch > 0

    def restart(self, opening: Opening) -> None:
        """Copy the database that was opened."""
        self._rows, self._commits = opening.rows, opening.head.counters.commits

    def committed(self, turn: Turn) -> None:
        """Make a snapshot when it is time to; between two turns."""
        self._commits = turn.head.counters.commits
        if monotonic_ms() - self._last_ms >= self._every_ms and self._is_idle():
            self._begin()

    def close(self, deadline_ms: float | None) -> None:
        """Make the last one; blocks until the deadline, a longer upload goes on alone."""
        if deadline_ms is None:
            return
        self._await(deadline_ms)
        if self._is_idle() and self._commits != self._last_commits:
            self._begin()
            self._await(deadline_ms)

    def _is_idle(self) -> bool:
        return self._upload is None or self._upload.done()

    def _await(self, deadline_ms: float) -> None:
        if self._upload is not None:
            left_s = max(deadline_ms - monotonic_ms(), 0.0) / 1000.0
            try:
                self._upload.result(left_s)
            except TimeoutError:
                return

    def _begin(self) -> None:
        rows, commits = self._rows, self._commits
        self._last_ms, self._last_commits = monotonic_ms(), commits
        point = SnapshotPoint(rows.epoch, commits)
        # of its own: the last one of another opening may still travel
        copy = rows.path.with_name(f"{rows.path.name}.{_COPY}-{point.epoch}-{commits}")
        try:
            line = line_of(rows.path)
            rows.checkpoint(copy)
        except StoreError as error:
            _log.warning("no snapshot of %s: %s", rows.path, error)
            return
        self._upload = self._uploads.submit(self._put, copy, point, line)

    def _put(self, copy: Path, point: SnapshotPoint, line: str) -> None:
        try:
            self.snapshots.put(copy, point, line)
        except StoreError as error:
            if copy.exists():
                _log.warning("%s", error)
            else:
                _log.info("the snapshot %s was given up: the next owner of %s is here", point, copy)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
