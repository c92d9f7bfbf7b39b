"""Rows of monitors in a ``SnapshotStore``.

Keys::

    mark/INCARNATION/PARTITION            number of the last frame that was counted, as text
    count/WORKER/TASK@VERSION/PART        parts of ``VersionHistory.dump``
    worker/WORKER                         of ``worker_rows``: who wrote last, and when
    ask/TASK@VERSION/MS                   empty: somebody asks for what happened since MS
    alarms/board                          which alarms were told, of ``watch.AlarmWatch``

A mark is all workers': it is raised in the transaction that has the counts of its frames, on
what it was when they were counted. That is what counts each frame once.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from walle_deploy.monitoring.history import RECENT_PARTS, SPANS_MAX, VersionHistory
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.ports import ReportFrame

WORKERS: Final = "worker/"
"""What keys of workers begin with."""


def mark_key(frame: ReportFrame) -> str:
    """Return the key of the mark of a frame's partition.

    Args:
        frame: Of which only incarnation and partition are looked at.
    """
    return f"mark/{frame.incarnation}/{frame.partition}"


def ask_rows(store: SnapshotStore) -> dict[str, list[int]]:
    """Return the moments that somebody asks for, by version, the latest last.

    Args:
        store: To read; blocks.
    """
    asks: dict[str, list[int]] = {}
    for key in store.load("ask/"):
        name, _, since_ms = key.removeprefix("ask/").rpartition("/")
        asks.setdefault(name, []).append(int(since_ms))
    return {name: sorted(moments)[-SPANS_MAX:] for name, moments in asks.items()}


def ask(store: SnapshotStore, name: str, since_ms: int) -> None:
    """Ask all workers to count what happens since some moment; blocks.

    Of each version the latest ``SPANS_MAX`` are kept: nobody counts more.

    Args:
        store: To write.
        name: ``TASK@VERSION``.
        since_ms: Epoch milliseconds.
    """
    prefix = f"ask/{name}/"
    moments = {int(key.removeprefix(prefix)) for key in store.load(prefix)} | {since_ms}
    kept = set(sorted(moments)[-SPANS_MAX:])
    store.save({f"{prefix}{each}": b"" if each in kept else None for each in moments})


def count_rows(
    worker: str, histories: Mapping[str, VersionHistory], *, is_whole: bool = False
) -> dict[str, bytes]:
    """Return the rows of a worker's versions.

    Args:
        worker: Whose.
        histories: By ``TASK@VERSION``.
        is_whole: See ``VersionHistory.dump``.
    """
    return {
        f"count/{worker}/{name}/{part}": data
        for name, history in histories.items()
        for part, data in history.dump(is_whole=is_whole).items()
    }


def histories_of(rows: Mapping[str, bytes], worker: str) -> dict[str, VersionHistory]:
    """Return a worker's histories by ``TASK@VERSION``."""
    prefix = f"count/{worker}/"
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in rows.items():
        if key.startswith(prefix):
            name, _, part = key.removeprefix(prefix).rpartition("/")
            parts.setdefault(name, {})[part] = value
    return {name: VersionHistory.load(found) for name, found in parts.items()}


def load_version(store: SnapshotStore, name: str) -> Iterable[VersionHistory]:
    """Return all workers' histories of a version, of one state: each frame is in one of them.

    Args:
        store: To read; blocks.
        name: ``TASK@VERSION``.
    """
    rows = store.load(WORKERS)
    while True:
        asked = _workers(rows)
        rows = store.load(WORKERS, *(f"count/{worker}/{name}/" for worker in sorted(asked)))
        # one that came or went meanwhile may have taken over, or left, what others counted
        if _workers(rows) == asked:
            found = (histories_of(rows, worker).get(name) for worker in asked)
            return [each for each in found if each is not None]


def load_recent(store: SnapshotStore, names: Collection[str]) -> dict[str, list[VersionHistory]]:
    """Return all workers' histories of late, of one state: each frame is in one of them.

    Args:
        store: To read; blocks.
        names: ``TASK@VERSION``.
    """
    while True:
        workers = sorted(_workers(store.load(WORKERS)))
        places = {
            (name, worker): {part: f"count/{worker}/{name}/{part}" for part in RECENT_PARTS}
            for name in names
            for worker in workers
        }
        keys = [key for parts in places.values() for key in parts.values()]
        rows = store.read([*keys, *(f"{WORKERS}{worker}" for worker in workers)])
        if not all(f"{WORKERS}{worker}" in rows for worker in workers):
            continue  # another one took it over meanwhile
        found: dict[str, list[VersionHistory]] = {name: [] for name in names}
        for (name, _), parts in places.items():
            there = {part: rows[key] for part, key in parts.items() if key in rows}
            if there:
                found[name].append(VersionHistory.load_recent(there))
        return found


def _workers(rows: Iterable[str]) -> set[str]:
    return {key.removeprefix(WORKERS) for key in rows if key.startswith(WORKERS)}
