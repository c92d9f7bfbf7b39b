"""Takes reports of devices and knows how each version of each task does.

At least once in, exactly once counted: frames of one partition come in order, and one whose
number was seen is dropped. What frames count and the last number of each of their partitions
are written in one transaction, which fails where another worker of the same store has counted
some of them meanwhile; they are then counted again, on what that one wrote. Workers count apart
and are merged when somebody reads (``reader.HealthReader``); who is silent for long is taken
over by another.

Time is when a report arrives, by the monitor's clock: those of devices may be wrong.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.history import VersionHistory
from walle_deploy.monitoring.rows import ask_rows, count_rows, mark_key
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_deploy.monitoring.tally import MonitorCounts, Tally
from walle_deploy.monitoring.worker_rows import WorkerRows
from walle_stream.clock import wall_ms
from walle_stream.errors import ConflictError, WalleError
from walle_stream.faults import crash_point
from walle_stream.ports import ReportFrame

_ATTEMPTS: Final = 20
_log = logging.getLogger(__name__)


class _Turn:
    """Frames of one call, and what became of them."""

    def __init__(self, frames: Sequence[ReportFrame]) -> None:
        self.frames = frames
        self.new: int | None = None


class Monitor:
    """One worker's counts. Thread-safe; blocks on its store when it is made, and in ``take``.

    What it says of versions has what is about to be stored, and, where another worker took its
    counts over, what was counted before, until the next ``take``.
    """

    def __init__(
        self,
        store: SnapshotStore | None = None,
        worker: str = "0",
        *,
        now_ms: Callable[[], int] = wall_ms,
        is_known: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Go on from what is stored; blocks.

        Args:
            store: Where counts are kept; None for memory alone.
            worker: Which one, without ``/``. It goes on from what one of its name counted; two
                that live wait for each other at every batch.
            now_ms: The clock, epoch milliseconds.
            is_known: Says of a task and a version whether there is one: devices may send
                what they like. Any is where None.

        Raises:
            StoreError: The store cannot be read.
        """
        self.counts = MonitorCounts()
        self._now_ms = now_ms
        self._tally = Tally(now_ms, is_known)
        self._lock = threading.RLock()  # of the tally, and of those who wait
        self._storing = threading.Lock()
        self._waiting: list[_Turn] = []
        self._marks: dict[str, int] = {}  # where there is no store
        self._is_sure = False
        self._store = store
        self._rows: WorkerRows | None = None
        if store is not None:
            self._rows = WorkerRows(store, worker, now_ms)
            self._learn(self._rows)

    def take(self, frames: Sequence[ReportFrame]) -> int:
        """Count frames, once over all workers of the store, and store that; blocks.

        Calls that come while another one stores are stored together.

        Args:
            frames: Those of one partition in order; they may come again.

        Returns:
            How many were new.

        Raises:
            ConflictError: Other workers wrote the same rows again and again.
            StoreError: It may or may not be stored: give them again, here or to another worker.
        """
        turn = _Turn(frames)
        with self._lock:
            self._waiting.append(turn)
        with self._storing:
            if turn.new is None:
                self._take_waiting(turn)
        return turn.new or 0

    def health(self, task: str, version: str, since_ms: int = 0) -> VersionHealth:
        """Return how a version does here; all zero where nothing was reported.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            since_ms: Only what happened since then; epoch milliseconds, 0 for all. Asked for the
                first time it is known to the minute (the hour for what is old), from then on to
                the report.
        """
        with self._lock:
            return self._tally.health(task, version, since_ms)

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did here in the last ``history.WINDOW_MS``.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        with self._lock:
            found = self._tally.versions.get(f"{task}@{version}") or VersionHistory()
            return found.recent(self._now_ms()).health(task, version)

    def versions(self) -> dict[tuple[str, str], int]:
        """Return when the last report of each version came, epoch ms, by task and version."""
        with self._lock:
            return {_parted(name): each.seen_ms for name, each in self._tally.versions.items()}

    def close(self) -> None:
        """Let another worker take over at once what this one counted; blocks.

        Where the store does not answer, another does so when this one was silent for a while.
        """
        with self._storing:
            if self._rows is not None:
                try:
                    self._rows.give_up()
                except WalleError as error:
                    _log.info("counts of reports are left as they are: %s", error)

    def _take_waiting(self, own: _Turn) -> None:
        with self._lock:
            turns, self._waiting = self._waiting, []
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    self._count(turns)
                except ConflictError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                else:
                    break
        except BaseException:
            with self._lock:  # each of them is tried again by its own thread
                self._waiting = [each for each in turns if each is not own] + self._waiting
            raise

    def _count(self, turns: Sequence[_Turn]) -> None:
        rows, store = self._rows, self._store
        if rows is None or store is None:
            with self._lock:
                self._tell(turns, *self._tallied(turns, self._marks))
            return
        self._learn(rows)
        self._take_over(rows)
        asks = ask_rows(store)
        stored = store.read({mark_key(frame) for turn in turns for frame in turn.frames})
        marks = {key: int(number) for key, number in stored.items()}
        with self._changing() as names:
            with self._lock:
                self._tally.begin(asks)
                told = self._tallied(turns, marks)
                names.update(self._tally.changed)
                new = count_rows(rows.worker, {each: self._tally.versions[each] for each in names})
                self._tally.changed -= names
            moved = {key: b"%d" % number for key, number in marks.items()}
            moved = {key: number for key, number in moved.items() if number != stored.get(key)}
            if new or moved:
                crash_point("reports.before")
                rows.save(new | moved, {key: stored.get(key) for key in moved})
                crash_point("reports.after")
        self._tell(turns, *told)

    @contextmanager
    def _changing(self) -> Iterator[set[str]]:
        """Lend a set for the names of versions whose rows are written in the block."""
        names: set[str] = set()
        self._is_sure = False
        try:
            yield names
        except BaseException:
            with self._lock:
                self._tally.changed |= names
            raise
        self._is_sure = True

    def _tallied(
        self, turns: Sequence[_Turn], marks: dict[str, int]
    ) -> tuple[list[int], MonitorCounts]:
        done = MonitorCounts()
        return [self._tally.take(turn.frames, marks, done) for turn in turns], done

    def _tell(self, turns: Sequence[_Turn], new: Sequence[int], done: MonitorCounts) -> None:
        self.counts.add(done)
        for turn, number in zip(turns, new, strict=True):
            turn.new = number

    def _learn(self, rows: WorkerRows) -> None:
        """Put what is stored in place of what is in memory where it may be another."""
        if not self._is_sure:
            with self._lock:
                changed = set(self._tally.changed)
            found = rows.load(changed)
            with self._lock:
                self._tally.replace(found)
            self._is_sure = True

    def _take_over(self, rows: WorkerRows) -> None:
        for worker in rows.silent():
            found = rows.load_silent(worker)
            if found is None:
                continue
            with self._changing() as names:
                names.update(found.histories)
                with self._lock:
                    self._tally.merge(found.histories)
                    own = {each: self._tally.versions[each] for each in names}
                    new = count_rows(rows.worker, own, is_whole=True)
                    self._tally.changed -= names
                rows.save({**new, **found.rows}, found.expected)


def _parted(name: str) -> tuple[str, str]:
    task, _, version = name.partition("@")
    return task, version
