"""The partitions of one worker of a group: a table each, and the answers that they allow.

A table is opened from the worker's disk, or made from the newest snapshot if that is more advanced.
The topic brings the missing records. The table of a revoked partition stays on the disk, as the
partition may come back. The worker does not answer for a device while the table lacks records that
the topic had at the opening, or while another worker may own the partition.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec

from walle_stream.clock import monotonic_ms, unstopped_ms
from walle_stream.cloud.merging import Stretch
from walle_stream.cloud.partition_table import Kept, PartitionTable, place_of
from walle_stream.errors import StoreError
from walle_stream.store.copies import SnapshotCopies, Uploads
from walle_stream.store.files import make_folder
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint

_log = logging.getLogger(__name__)

SNAPSHOT_EVERY_MS: Final = 60_000.0

MOVING: Final = "partitions are being moved or recovered"
"""Reason for no answer at present, unless this worker is cut off."""

_CUT_OFF: Final = "the broker has not answered this worker for a session's time"


_SHOWN: Final = {
    "features": "features",
    "devices": "devices",
    "duplicates_dropped": "duplicates_dropped",
    "gaps": "gaps",
    "calls": "calls",
    "reports": "frames",
    "refused": "frames_refused",
}


class _Open:
    # a partition of this worker
    def __init__(
        self, table: PartitionTable, copies: SnapshotCopies | None = None, epoch: int = 0
    ) -> None:
        self.table = table
        self.copies = copies
        self.epoch = epoch  # of the opening, with snapshots
        self.goal: int | None = None  # end of the topic's records at the opening
        self.end = 0  # latest known end of the topic

    @property
    def is_ready(self) -> bool:
        return self.goal is not None and self.table.place.next >= self.goal

    @property
    def point(self) -> SnapshotPoint:
        return SnapshotPoint(self.epoch, self.table.place.progress)


class TableOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of tables."""

    keep: int
    keeps_reports: bool = False
    keeps_calls: bool = False
    sinks: Sequence[str] = ()
    """Names of the sinks that get merged features."""
    snapshots: Callable[[int], PartitionSnapshots] | None = None
    """Returns the snapshots of a partition; None: missing records come from the topic alone."""
    snapshot_every_ms: float = SNAPSHOT_EVERY_MS


class Partitions:
    """``ports.Placement`` of a worker; the reader's thread changes it, any thread may read."""

    may_begin_anew = False

    def __init__(self, folder: Path, address: str, options: TableOptions) -> None:
        """Open nothing; ``folder`` is made later. ``address`` is the look-ups' ``HOST:PORT``."""
        self.incarnation = address
        self._folder = folder
        self._options = options
        self._lock = Lock()
        self._open: dict[int, _Open] = {}
        self.on_call: Callable[[], None] = lambda: None
        """Called after the merge of a call, or when a table may have open calls."""
        self._until_ms: float | None = None
        self._is_member = False
        self._uploads = Uploads()

    # Calls of the group's reader

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open tables; see ``Placement.assign``. A place needs no generation; see the module."""
        del generation
        with self._lock:
            self._until_ms = None  # earlier knowledge of the group is no longer valid
        offsets = {}
        for number in partitions:
            made = self._make(number)
            with self._lock:
                self._open[number] = made
            self.on_call()
            if made.table.place.offset:
                offsets[number] = made.table.place.offset
        return offsets

    def settle(self) -> bool:
        """Return that no call of a cloud side waits."""
        return True

    def revoke(self, partitions: Sequence[int], deadline_ms: float) -> None:
        """Close tables after a last snapshot; see ``Placement.revoke``."""
        for number, each in self._forget(partitions):
            if each.copies is not None:
                table = each.table
                each.copies.close(table.path, table.checkpoint, each.point, deadline_ms)
            _log.info("partition %d was given back", number)
            each.table.close()

    def lose(self, partitions: Sequence[int]) -> None:
        """Close tables; see ``Placement.lose``."""
        for number, each in self._forget(partitions):
            _log.info("partition %d was lost to another worker", number)
            each.table.close()

    def close(self) -> None:
        """Close open tables, and wait for a running snapshot; may be called twice."""
        self.lose(list(self._open))
        self._uploads.shutdown()

    def joined(self, *, is_member: bool) -> None:
        """Record whether this worker is a member of the group, with any partitions."""
        self._is_member = is_member

    def held_until(self, until_ms: float) -> None:
        """Record the time, by ``clock.unstopped_ms``, until which no other worker can own them."""
        self._until_ms = until_ms

    # Records

    def expect(self, number: int, goal: int, end: int) -> None:
        """Record the present end of a partition's topic.

        ``goal`` is its end at the opening; 0 if all of that was read.
        """
        self._open[number].goal, self._open[number].end = goal, end

    def seen_end(self, number: int, end: int) -> None:
        """Record the present end of a partition's topic."""
        self._open[number].end = end

    def take(
        self,
        number: int,
        stretches: Iterable[Stretch],
        offset: bytes,
        next_offset: int,
        refused: int = 0,
    ) -> None:
        """Merge the next records of a partition; see ``PartitionTable.take``."""
        opened = self._open[number]
        last_call = opened.table.last_call
        for problem in opened.table.take(stretches, offset, next_offset, refused):
            _log.warning("partition %d: refused: %s", number, problem)
        if opened.table.last_call != last_call:
            self.on_call()
        if opened.copies is not None:
            opened.copies.committed(opened.table.path, opened.table.checkpoint, opened.point)

    # Answers

    @property
    def problem(self) -> str:
        """Reason for which no device can be answered now; empty without one.

        Read it after looking into a table: a process that was stopped in between has an older row.
        """
        with self._lock:
            until_ms, has_some = self._until_ms, bool(self._open)
        # a library may close the tables when the broker does not answer
        is_concerned = has_some or not self._is_member
        if is_concerned and until_ms is not None and unstopped_ms() >= until_ms:
            return _CUT_OFF
        if not self._is_member or (has_some and until_ms is None):
            return MOVING
        return ""

    @property
    def ready(self) -> set[int]:
        """Partitions whose tables have all records that the topic had at the opening."""
        return {number for number, each in self._opened() if each.is_ready}

    def tables(self) -> list[PartitionTable]:
        """Return the open tables."""
        return [each.table for _, each in self._opened()]

    def look_up(self, device_id: str) -> tuple[Kept | None, bool]:
        """Return the kept rows of a device, and whether they are complete; any thread.

        All tables are searched, as the sender chooses the partition and the key does not tell it.
        """
        for _, each in self._opened():
            try:
                kept = each.table.look_up(device_id)
            except StoreError:
                continue  # the table was given away meanwhile
            if kept is not None:
                return kept, each.is_ready
        return None, True

    @property
    def report_counts(self) -> tuple[int, int]:
        """Numbers of waiting frames of reports in all tables, and of those dropped."""
        counts = [table.report_counts for table in self.tables()]
        return sum(waiting for waiting, _ in counts), sum(dropped for _, dropped in counts)

    def health(self) -> dict[str, Any]:
        """Return counts and positions, for people."""
        stats = [table.stats for table in self.tables()]
        counts = {
            shown: sum(getattr(each, name) for each in stats) for shown, name in _SHOWN.items()
        }
        if not self._options.keeps_calls:
            counts["calls_unanswered"] = counts["calls"]
        return {
            "counts": counts,
            "partitions": {
                str(number): {
                    "is_ready": each.is_ready,
                    "is_behind": each.table.place.next < each.end,
                    "next_offset": each.table.place.next,
                    "lag_records": max(each.end - each.table.place.next, 0),
                }
                for number, each in self._opened()
            },
        }

    def _opened(self) -> list[tuple[int, _Open]]:
        with self._lock:
            return sorted(self._open.items())

    def _forget(self, partitions: Sequence[int]) -> list[tuple[int, _Open]]:
        with self._lock:
            return [(n, self._open.pop(n)) for n in partitions if n in self._open]

    def _make(self, number: int) -> _Open:
        options, path = self._options, self._folder / f"{number:02d}"
        make_folder(self._folder)
        copies, epoch = None, 0
        if options.snapshots is not None:
            store = options.snapshots(number)
            copies = SnapshotCopies(store, self._uploads, options.snapshot_every_ms)
            epoch = store.own()
            self._fetch(copies, path)
        table = PartitionTable(
            path,
            options.keep,
            keeps_reports=options.keeps_reports,
            keeps_calls=options.keeps_calls,
        )
        table.serve_sinks(options.sinks, f"partition-{number:04d}")
        return _Open(table, copies, epoch)

    @staticmethod
    def _fetch(copies: SnapshotCopies, path: Path) -> None:
        newest = copies.prepare(path)
        if newest is None:
            return
        if (path / "CURRENT").exists() and place_of(path).progress >= newest.commits:
            return
        began_ms = monotonic_ms()
        copies.snapshots.fetch(path)
        _log.info("%s has the snapshot %s, %.0f ms", path, newest, monotonic_ms() - began_ms)
