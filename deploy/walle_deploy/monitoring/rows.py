"""Rows of monitors in a ``SnapshotStore``.

Keys::

    mark/WORKER/INCARNATION/PARTITION     number of the last frame that was counted, as text
    count/WORKER/TASK@VERSION/PART        parts of ``VersionHistory.dump``
    worker/WORKER                         empty: there is one of that name
    ask/TASK@VERSION/MS                   empty: somebody asks for what happened since MS
    alarms/board                          which alarms were told, of ``watch.AlarmWatch``

Marks and counts of one worker are of one moment: that is what counts each frame once.
"""

from collections.abc import Mapping

from walle_deploy.monitoring.devices import EXACT_DEVICES
from walle_deploy.monitoring.history import SPANS_MAX, VersionHistory
from walle_deploy.monitoring.snapshots import SnapshotStore


def mark_rows(store: SnapshotStore) -> dict[tuple[str, int], int]:
    """Return the last counted frame of each (incarnation, partition), of all workers.

    Args:
        store: To read; blocks.
    """
    marks: dict[tuple[str, int], int] = {}
    for key, value in store.load("mark/").items():
        _, _, incarnation, partition = key.split("/")
        place = incarnation, int(partition)
        marks[place] = max(int(value), marks.get(place, -1))
    return marks


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

    Args:
        store: To write.
        name: ``TASK@VERSION``.
        since_ms: Epoch milliseconds.
    """
    store.save({f"ask/{name}/{since_ms}": b""})


def count_rows(worker: str, histories: Mapping[str, VersionHistory]) -> dict[str, bytes]:
    """Return the rows of a worker's versions.

    Args:
        worker: Whose.
        histories: By ``TASK@VERSION``.
    """
    rows = {f"worker/{worker}": b""}
    for name, history in histories.items():
        rows |= {f"count/{worker}/{name}/{part}": data for part, data in history.dump().items()}
    return rows


def workers(store: SnapshotStore) -> list[str]:
    """Return the names of all workers that ever counted.

    Args:
        store: To read; blocks.
    """
    return [key.removeprefix("worker/") for key in store.load("worker/")]


def load_histories(
    store: SnapshotStore, worker: str, only: str = "", exact_devices: int = EXACT_DEVICES
) -> dict[str, VersionHistory]:
    """Return a worker's histories by ``TASK@VERSION``.

    Args:
        store: To read; blocks.
        worker: Whose.
        only: One version; all when empty.
        exact_devices: Bound of exact numbers of devices.
    """
    prefix = f"count/{worker}/"
    parts: dict[str, dict[str, bytes]] = {}
    for key, value in store.load(f"{prefix}{only}/" if only else prefix).items():
        name, _, part = key.removeprefix(prefix).rpartition("/")
        if only in {"", name}:
            parts.setdefault(name, {})[part] = value
    return {name: VersionHistory.load(found, exact_devices) for name, found in parts.items()}
