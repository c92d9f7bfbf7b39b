"""Periodic copies of a database, uploaded as its snapshots.

A copy is made between two commits, and blocks the whole process for some milliseconds. Its upload
runs in a thread of its own. Databases therefore take turns: each has its own moments in time. A
failed snapshot is retried later, with growing waits, as the database itself has all data.
"""

import logging
import math
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import RLock, Thread
from typing import Final, override

from walle_stream.clock import monotonic_ms
from walle_stream.errors import EpochTakenError, StoreError
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint

_log = logging.getLogger(__name__)

_COPY: Final = "checkpoint"
"""Name of copies; the next owner removes those of a dead process."""

_LONGEST_WAIT_MS: Final = 60_000.0
"""Maximum wait between attempts while snapshots fail, unless their interval is longer."""

_SPREAD: Final = (5.0**0.5 - 1.0) / 2.0
"""Golden ratio: its multiples, modulo an interval, stay apart for any number of databases."""

_opened: Final = count()

_LAST_WAIT_S: Final = 5.0
"""Wait for the current upload at the end of a process."""


class Uploads(Executor):
    """Runner of one upload after the other, in daemon threads, as a store may hang."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self._turn = RLock()

    @override
    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            with self._turn:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(fn(*args, **kwargs))
                    except BaseException as error:  # noqa: BLE001 - the future passes it on
                        future.set_exception(error)

        Thread(target=run, name="walle-snapshots", daemon=True).start()
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        # no other upload begins once this thread holds the lock
        self._turn.acquire(timeout=_LAST_WAIT_S)


class SnapshotCopies:
    """Updater of one database's snapshots. One thread."""

    def __init__(self, snapshots: PartitionSnapshots, uploads: Executor, every_ms: float) -> None:
        """Begin.

        Args:
            snapshots: Destination of the snapshots.
            uploads: Shared by the databases of a process.
            every_ms: Time between two snapshots, within a tolerance of one half.
        """
        self.snapshots = snapshots
        self.on_kept: Callable[[], object] = lambda: None
        """Called in the upload's thread when every later owner will find the new snapshot."""
        self.failures = 0
        """Number of failures since the last success."""
        self._uploads = uploads
        self._every_ms = every_ms
        self._phase = next(_opened) * _SPREAD % 1.0
        self._last_ms = monotonic_ms()
        self._due_ms = self._next_ms()
        self._last_point: SnapshotPoint | None = None
        self._upload: Future[None] | None = None
        self._copy = Path()

    def prepare(self, path: Path) -> SnapshotPoint | None:
        """Remove copies of a dead process, and return the newest snapshot; blocks.

        Args:
            path: The database's folder, closed.

        Raises:
            StoreError: The snapshots cannot be listed.
        """
        for left in path.parent.glob(f"{path.name}.{_COPY}-*"):
            shutil.rmtree(left, ignore_errors=True)
        newest = self.snapshots.newest
        if newest is None:
            self._due_ms = -math.inf  # the first commit makes the first snapshot
        return newest

    def committed(
        self, path: Path, checkpoint: Callable[[Path], None], point: SnapshotPoint
    ) -> None:
        """Make a snapshot if one is due.

        Args:
            path: The database's folder.
            checkpoint: Copies the database into a folder that does not exist.
            point: Progress of the database.
        """
        if self.is_due and point != self._last_point:
            self._begin(path, checkpoint, point)

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is due, and no upload is running."""
        due_ms = self._due_ms
        if self.failures:
            every_ms, growth = self._every_ms, 2.0 ** min(self.failures, 10)
            longest_ms = max(every_ms, _LONGEST_WAIT_MS)
            due_ms = self._last_ms + min(max(every_ms, 100.0) * growth, longest_ms)
        return monotonic_ms() >= due_ms and self._is_idle()

    def _next_ms(self) -> float:
        # the own moment nearest to a whole interval from now
        every_ms = self._every_ms
        if not every_ms:
            return self._last_ms
        return (round(self._last_ms / every_ms + 1.0 - self._phase) + self._phase) * every_ms

    def close(
        self,
        path: Path,
        checkpoint: Callable[[Path], None],
        point: SnapshotPoint,
        deadline_ms: float,
    ) -> None:
        """Make the last snapshot; blocks until the deadline, but a running upload continues."""
        self._await(deadline_ms)
        if self._is_idle() and point != self._last_point:
            self._begin(path, checkpoint, point)
            self._await(deadline_ms)
        if self._upload is not None and self._upload.cancel():
            shutil.rmtree(self._copy, ignore_errors=True)

    def _is_idle(self) -> bool:
        return self._upload is None or self._upload.done()

    def _await(self, deadline_ms: float) -> None:
        if self._upload is not None:
            left_s = max(deadline_ms - monotonic_ms(), 0.0) / 1000.0
            with suppress(TimeoutError):
                self._upload.result(left_s)

    def _begin(self, path: Path, checkpoint: Callable[[Path], None], point: SnapshotPoint) -> None:
        self._last_ms = monotonic_ms()
        self._due_ms = self._next_ms()
        # a name of its own, as the last upload of another opening may still run
        copy = path.with_name(f"{path.name}.{_COPY}-{point.epoch}-{point.commits}")
        try:
            checkpoint(copy)
        except StoreError as error:
            _log.warning("no snapshot of %s: %s", path, error)
            return
        self._copy = copy
        self._upload = self._uploads.submit(self._put, copy, point)

    def _put(self, copy: Path, point: SnapshotPoint) -> None:
        try:
            is_for_good = self.snapshots.put(copy, point)
        except EpochTakenError as error:
            _log.info("the snapshot %s of %s was abandoned: %s", point, copy, error)
        except StoreError as error:
            self.failures += 1
            if self.failures == 1 and copy.exists():
                _log.warning("a snapshot failed, and is retried: %s", error)
        else:
            if self.failures:
                _log.warning("%s: snapshots work again, %d failed", self.snapshots, self.failures)
            self.failures, self._last_point = 0, point
            if is_for_good:
                self.on_kept()
        finally:
            shutil.rmtree(copy, ignore_errors=True)
