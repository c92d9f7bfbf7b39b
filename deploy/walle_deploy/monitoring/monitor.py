"""Takes reports of devices and knows how each version of each task does.

At least once in, exactly once counted: frames of one partition come in order, and one whose
number was seen is dropped. Frames of one incarnation (one data directory) go to one worker;
workers count apart and are merged when somebody reads (``reader.HealthReader``).

Time is when a report arrives, by the monitor's clock: those of devices may be wrong.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.devices import EXACT_DEVICES
from walle_deploy.monitoring.history import VersionHistory
from walle_deploy.monitoring.rows import ask_rows, count_rows, load_histories, mark_rows
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.clock import wall_ms
from walle_stream.errors import EnvelopeError
from walle_stream.faults import crash_point
from walle_stream.ports import ReportFrame
from walle_stream.wire.reports import TaskReport, decode_reports

VERSIONS_MAX: Final = 10_000
"""Versions of tasks that a monitor counts; reports of further ones are refused."""


class MonitorCounts(msgspec.Struct):
    """What a monitor has done, for metrics."""

    frames: int = 0
    """That were counted."""
    reports: int = 0
    """In these."""
    frames_again: int = 0
    """That were counted before."""
    frames_refused: int = 0
    """Malformed."""
    reports_refused: int = 0
    """Of tasks or versions that there are not, or too many."""


class Monitor:
    """One worker's counts. Thread-safe; blocks on its store when it is made, and in ``flush``."""

    def __init__(
        self,
        store: SnapshotStore | None = None,
        worker: str = "0",
        *,
        exact_devices: int = EXACT_DEVICES,
        now_ms: Callable[[], int] = wall_ms,
        is_known: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Go on from what is stored; blocks.

        Args:
            store: Where counts go with ``flush``; None for memory alone.
            worker: Which one, without ``/``; two of one name would count over each other.
            exact_devices: Bound of exact numbers of devices.
            now_ms: The clock, epoch milliseconds.
            is_known: Says of a task and a version whether there is one: devices may send
                what they like. Any is where None.

        Raises:
            StoreError: The store cannot be read.
        """
        self.counts = MonitorCounts()
        self._store = store
        self._worker = worker
        self._exact_devices = exact_devices
        self._now_ms = now_ms
        self._is_known = is_known
        self._lock = threading.RLock()
        self._flushing = threading.Lock()
        self._marks: dict[tuple[str, int], int] = {}
        self._versions: dict[str, VersionHistory] = {}
        self._asks: dict[str, list[int]] = {}  # of the store
        self._early: dict[str, set[int]] = {}  # of versions that nobody has reported
        self._new_marks: set[tuple[str, int]] = set()
        self._changed: set[str] = set()
        if store is not None:
            # of all workers: a partition may have gone from another one to this
            self._marks = mark_rows(store)
            self._versions = load_histories(store, worker, "", exact_devices)
            self._begin_spans(ask_rows(store))

    def take(self, frames: Sequence[ReportFrame]) -> int:
        """Count frames; they are stored with the next ``flush``.

        Args:
            frames: Those of one partition in order; they may come again.

        Returns:
            How many were new.
        """
        with self._lock:
            return sum(self._take(frame) for frame in frames)

    def health(self, task: str, version: str, since_ms: int = 0) -> VersionHealth:
        """Return how a version does here; all zero where nothing was reported.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            since_ms: Only what happened since then; epoch milliseconds, 0 for all. Asked for the
                first time it is known to the minute (the hour for what is old), from then on to
                the report.
        """
        name = f"{task}@{version}"
        with self._lock:
            found = self._versions.get(name)
            if found is None:
                if len(self._early) < VERSIONS_MAX:
                    self._early.setdefault(name, set()).add(since_ms)
                return VersionHistory().total.health(task, version)
            if found.begin(since_ms):
                self._changed.add(name)
            return found.since(since_ms).health(task, version)

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did here in the last ``history.WINDOW_MS``.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        with self._lock:
            found = self._versions.get(f"{task}@{version}") or VersionHistory()
            return found.recent(self._now_ms()).health(task, version)

    def versions(self) -> dict[tuple[str, str], int]:
        """Return when the last report of each version came, epoch ms, by task and version."""
        with self._lock:
            return {_parted(name): each.seen_ms for name, each in self._versions.items()}

    def flush(self) -> None:
        """Store what changed since the last time, in one batch; blocks.

        Raises:
            StoreError: Nothing was stored; the next flush has it, too.
        """
        if self._store is not None:
            with self._flushing:  # what one wrote must not be overtaken by what was before
                self._flush(self._store)

    def _flush(self, store: SnapshotStore) -> None:
        asks = ask_rows(store)
        with self._lock:
            self._begin_spans(asks)
            rows = self._rows()
            marks, changed = self._new_marks, self._changed
            self._new_marks, self._changed = set(), set()
        try:
            if rows:
                crash_point("reports.before")
                store.save(rows)
                crash_point("reports.after")
        except BaseException:
            with self._lock:
                self._new_marks |= marks
                self._changed |= changed
            raise

    def _begin_spans(self, asks: dict[str, list[int]]) -> None:
        new = {name: asks[name] for name in asks if asks[name] != self._asks.get(name)}
        self._asks = asks
        for name, moments in new.items():
            found = self._versions.get(name)
            if found is not None and sum(found.begin(each) for each in moments):
                self._changed.add(name)

    def _take(self, frame: ReportFrame) -> bool:
        key = frame.incarnation, frame.partition
        if frame.number <= self._marks.get(key, -1):
            self.counts.frames_again += 1
            return False
        self._marks[key] = frame.number
        self._new_marks.add(key)
        try:
            reports = decode_reports(frame.body)
        except EnvelopeError:
            self.counts.frames_refused += 1
            return False
        self.counts.frames += 1
        for report in reports:
            self._count(report)
        return True

    def _count(self, report: TaskReport) -> None:
        name = f"{report.task}@{report.version}"
        found = self._versions.get(name)
        if found is None:
            if not self._is_admitted(report, name):
                self.counts.reports_refused += 1
                return
            found = self._versions[name] = VersionHistory(self._exact_devices)
            for moment in sorted({*self._asks.get(name, ()), *self._early.pop(name, ())}):
                found.begin(moment)
        self.counts.reports += 1
        found.add(report, self._now_ms())
        self._changed.add(name)

    def _is_admitted(self, report: TaskReport, name: str) -> bool:
        if len(self._versions) >= VERSIONS_MAX:
            return False
        # a task with an @ could not be told apart from another one, and no store keeps NUL
        if "@" in report.task or not name.isprintable():
            return False
        return self._is_known is None or self._is_known(report.task, report.version)

    def _rows(self) -> dict[str, bytes]:
        worker = self._worker
        rows = {
            f"mark/{worker}/{key[0]}/{key[1]}": b"%d" % self._marks[key] for key in self._new_marks
        }
        if rows or self._changed:
            rows |= count_rows(worker, {name: self._versions[name] for name in self._changed})
        return rows


def _parted(name: str) -> tuple[str, str]:
    task, _, version = name.partition("@")
    return task, version
