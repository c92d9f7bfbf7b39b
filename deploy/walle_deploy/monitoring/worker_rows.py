"""The rows of one worker in the store, and how another takes them over.

A worker's row ``worker/WORKER`` has when it wrote last (epoch ms by its clock) and a random
text, other at each write; 0 for the time where the worker gave its counts up. Every write of a
worker expects the row as it wrote it last. So whoever adds a silent worker's counts to its own
and deletes its rows does no harm where that one lives after all: its next write fails, it
learns that it has counted nothing, and goes on from there. Clocks decide only what is efficient.
"""

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from walle_deploy.monitoring.history import VersionHistory
from walle_deploy.monitoring.rows import WORKERS, histories_of
from walle_deploy.monitoring.snapshots import SnapshotStore

SILENT_MS: Final = 60_000
"""After which a worker's rows are another's to take over."""

_LOOK_MS: Final = SILENT_MS // 2
_GIVEN_UP: Final = 0


class SilentWorker(NamedTuple):
    """A worker whose counts are to be taken over, as of one state of the store."""

    histories: Mapping[str, VersionHistory]
    """By ``TASK@VERSION``."""
    rows: Mapping[str, bytes | None]
    """To write with them: none of its own are left."""
    expected: Mapping[str, bytes | None]
    """By then; else it lives, or somebody else took it over."""


class WorkerRows:
    """One worker's. One thread at a time; every method blocks on the store."""

    def __init__(self, store: SnapshotStore, worker: str, now_ms: Callable[[], int]) -> None:
        """Read nothing yet.

        Args:
            store: Where they are.
            worker: Whose.
            now_ms: The clock, epoch milliseconds.
        """
        self.worker = worker
        self._store = store
        self._key = f"{WORKERS}{worker}"
        self._now_ms = now_ms
        self._wrote: bytes | None = None
        self._is_read = False
        self._looked_ms: int | None = None

    def load(self, changed: Collection[str]) -> Mapping[str, VersionHistory | None]:
        """Return by ``TASK@VERSION`` what the store has of this worker.

        Args:
            changed: All that may have changed since what is in the store now was written or
                loaded here.

        Returns:
            Those that have to be put in place of what is in memory, None where there is nothing;
            with the name "" among them all others are to be forgotten.
        """
        wrote = self._store.read([self._key]).get(self._key)
        is_all = not self._is_read or wrote != self._wrote
        prefixes = [f"count/{self.worker}/"]
        if not is_all:
            prefixes = [f"{prefixes[0]}{name}/" for name in changed]
        rows = self._store.load(*prefixes)
        found: dict[str, VersionHistory | None] = {"": None} if is_all else dict.fromkeys(changed)
        found.update(histories_of(rows, self.worker))
        self._wrote, self._is_read = wrote, True
        return found

    def save(self, rows: Mapping[str, bytes | None], expected: Mapping[str, bytes | None]) -> None:
        """Write rows, with a new one that says who and when.

        Args:
            rows: Beside that.
            expected: What must still be there, beside this worker's own.

        Raises:
            ConflictError: It is not, or another took this worker's rows over: load again.
            StoreError: It is not known whether they were written: load again.
        """
        wrote = f"{self._now_ms()} {secrets.token_hex(8)}".encode()
        self._store.save({**rows, self._key: wrote}, {**expected, self._key: self._wrote})
        self._wrote = wrote

    def give_up(self) -> None:
        """Let the next worker that looks have what is stored.

        Raises:
            ConflictError: Another has it already.
            StoreError: It is had by another when this one was silent for a while.
        """
        if self._wrote:
            wrote = f"{_GIVEN_UP} {secrets.token_hex(8)}".encode()
            self._store.save({self._key: wrote}, {self._key: self._wrote})
            self._wrote = wrote

    def silent(self) -> list[str]:
        """Return the other workers that gave up or are silent; looks now and then only."""
        now_ms = self._now_ms()
        if self._looked_ms is not None and abs(now_ms - self._looked_ms) < _LOOK_MS:
            return []
        self._looked_ms = now_ms
        rows = self._store.load(WORKERS)
        return [
            key.removeprefix(WORKERS)
            for key, wrote in rows.items()
            if key != self._key and _is_silent(wrote, now_ms)
        ]

    def load_silent(self, worker: str) -> SilentWorker | None:
        """Return what a silent worker leaves; None where it is silent no more, or gone.

        Args:
            worker: Of ``silent``.
        """
        key = f"{WORKERS}{worker}"
        # in walle 0.1 each worker had marks of its own: mark/WORKER/INCARNATION/PARTITION
        counts, marks = f"count/{worker}/", f"mark/{worker}/"
        rows = self._store.load(key, counts, marks)
        wrote = rows.get(key)
        if wrote is None or not _is_silent(wrote, self._now_ms()):
            return None
        old = {f"mark/{each.removeprefix(marks)}": each for each in rows if each.startswith(marks)}
        stored = self._store.read(old)
        gone = [key, *old.values(), *(each for each in rows if each.startswith(counts))]
        raised = {
            each: max(rows[before], stored.get(each, b"-1"), key=int)
            for each, before in old.items()
        }
        return SilentWorker(
            histories_of(rows, worker),
            {**dict.fromkeys(gone), **raised},
            {key: wrote, **{each: stored.get(each) for each in old}},
        )


def _is_silent(wrote: bytes, now_ms: int) -> bool:
    # a clock may be wrong, which then is the same as silent: who lives begins anew. Those of
    # walle 0.1 are empty
    at_ms = int(wrote.partition(b" ")[0] or _GIVEN_UP)
    return at_ms == _GIVEN_UP or abs(now_ms - at_ms) > SILENT_MS
