"""The partitions that one worker of a group was given: a table each, and what may be said of them.

A table is opened where this worker has it, or made of the newest snapshot where that is further;
what is missing the topic brings. One that was given away stays on the disk: it may come back.
It tells nothing of a device while the table lacks what the topic had when it was opened, nor when
somebody else may have the partition.
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
"""Why nothing is known now, unless this worker is cut off."""

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
    # a partition that was given to this worker
    def __init__(
        self, table: PartitionTable, copies: SnapshotCopies | None = None, epoch: int = 0
    ) -> None:
        self.table = table
        self.copies = copies
        self.epoch = epoch  # of the opening, where there are snapshots
        self.goal: int | None = None  # of the topic's records, those that it had at the opening
        self.end = 0  # of the topic, as of lately

    @property
    def is_ready(self) -> bool:
        return self.goal is not None and self.table.place.next >= self.goal

    @property
    def point(self) -> SnapshotPoint:
        return SnapshotPoint(self.epoch, self.table.place.progress)


class TableOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are kept."""

    keep: int
    keeps_reports: bool = False
    keeps_calls: bool = False
    sinks: Sequence[str] = ()
    """Names of those that get what is merged."""
    snapshots: Callable[[int], PartitionSnapshots] | None = None
    """Gives those of a partition; None: the topic alone brings what a worker lacks."""
    snapshot_every_ms: float = SNAPSHOT_EVERY_MS


class Partitions:
    """Implements ``ports.Placement``; its reader's thread gives and takes, any may ask."""

    may_begin_anew = False

    def __init__(self, folder: Path, address: str, options: TableOptions) -> None:
        """Open nothing yet; ``folder`` is made, the group is told ``HOST:PORT`` of the look-ups."""
        self.incarnation = address
        self._folder = folder
        self._options = options
        self._lock = Lock()
        self._open: dict[int, _Open] = {}
        self.on_call: Callable[[], None] = lambda: None
        """Called when a call of a service was merged, or a table may have some."""
        self._until_ms: float | None = None
        self._is_member = False
        self._uploads = Uploads()

    # What the group gives and takes

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open tables; see ``Placement.assign``. A place needs no generation: see the module."""
        del generation
        with self._lock:
            self._until_ms = None  # what was known of the group was before
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
        """Close tables behind a last snapshot; see ``Placement.revoke``."""
        for number, each in self._forget(partitions):
            if each.copies is not None:
                table = each.table
                each.copies.close(table.path, table.checkpoint, each.point, deadline_ms)
            _log.info("partition %d was given back", number)
            each.table.close()

    def lose(self, partitions: Sequence[int]) -> None:
        """Close tables; see ``Placement.lose``."""
        for number, each in self._forget(partitions):
            _log.info("partition %d is another worker's", number)
            each.table.close()

    def close(self) -> None:
        """Close what is open, and wait for a snapshot on its way; may be called twice."""
        self.lose(list(self._open))
        self._uploads.shutdown()

    def joined(self, *, is_member: bool) -> None:
        """Note whether this worker is a member of the group, with whatever partitions."""
        self._is_member = is_member

    def held_until(self, until_ms: float) -> None:
        """Note until when, by ``clock.unstopped_ms``, nobody else can have the partitions."""
        self._until_ms = until_ms

    # What comes

    def expect(self, number: int, goal: int, end: int) -> None:
        """Note how far a partition's topic goes now.

        ``goal`` is where its end was when it was opened; 0 where all of that was read.
        """
        self._open[number].goal, self._open[number].end = goal, end

    def seen_end(self, number: int, end: int) -> None:
        """Note where a partition's end is now."""
        self._open[number].end = end

    def take(
        self,
        number: int,
        stretches: Iterable[Stretch],
        offset: bytes,
        next_offset: int,
        refused: int = 0,
    ) -> None:
        """Merge what comes next of a partition; see ``PartitionTable.take``."""
        opened = self._open[number]
        last_call = opened.table.last_call
        for problem in opened.table.take(stretches, offset, next_offset, refused):
            _log.warning("partition %d: refused: %s", number, problem)
        if opened.table.last_call != last_call:
            self.on_call()
        if opened.copies is not None:
            opened.copies.committed(opened.table.path, opened.table.checkpoint, opened.point)

    # What may be said

    @property
    def problem(self) -> str:
        """Why nothing can be said of any device now; empty if it can.

        Ask behind a look into a table: a process that was stopped in between has an older row.
        """
        with self._lock:
            until_ms, has_some = self._until_ms, bool(self._open)
        # a library may close the tables when the broker is silent
        is_concerned = has_some or not self._is_member
        if is_concerned and until_ms is not None and unstopped_ms() >= until_ms:
            return _CUT_OFF
        if not self._is_member or (has_some and until_ms is None):
            return MOVING
        return ""

    @property
    def ready(self) -> set[int]:
        """Partitions whose tables have what the topic had when they were opened."""
        return {number for number, each in self._opened() if each.is_ready}

    def tables(self) -> list[PartitionTable]:
        """Return those that are open."""
        return [each.table for _, each in self._opened()]

    def look_up(self, device_id: str) -> tuple[Kept | None, bool]:
        """Return what is kept of a device, and whether all of it is there; any thread.

        The key does not tell the partition: who sends says which one it is.
        """
        for _, each in self._opened():
            try:
                kept = each.table.look_up(device_id)
            except StoreError:
                continue  # it was given away meanwhile
            if kept is not None:
                return kept, each.is_ready
        return None, True

    @property
    def report_counts(self) -> tuple[int, int]:
        """How many frames of reports wait in all tables, and how many had no room."""
        counts = [table.report_counts for table in self.tables()]
        return sum(waiting for waiting, _ in counts), sum(dropped for _, dropped in counts)

    def health(self) -> dict[str, Any]:
        """Return counts and places, for people."""
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
        _log.info("%s is the snapshot %s, %.0f ms", path, newest, monotonic_ms() - began_ms)
