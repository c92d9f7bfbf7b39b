"""The folder of a worker's tables: made, and held by one process."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import StoreError, StoreLockedError

LOCK_WAIT_S: Final = 10.0
"""A worker that was killed may still be dying, and holds its databases until then."""

_RUNS_FILE: Final = "meta.json"
_PAUSE_S: Final = 0.1


@contextmanager
def open_folder(path: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[Path]:
    """Make the folder and lock it; blocks.

    Args:
        path: As the user gave it.
        wait_s: How long a worker that is ending is waited for.

    Yields:
        The absolute path.

    Raises:
        StoreError: It cannot be used, or is of ``walle run``.
        StoreLockedError: Another worker has it.
    """
    if (path / _RUNS_FILE).exists():
        raise StoreError(
            f"{path} is the data directory of walle run or walle device: give another --data-dir"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"{path} cannot be used as data directory ({reason}): give another --data-dir"
        ) from error
    try:
        _take(lock, path, monotonic_ms() + wait_s * 1000.0)
        yield path.absolute()
    finally:
        os.close(lock)


def _take(lock: int, path: Path, deadline_ms: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic_ms() >= deadline_ms:
                raise StoreLockedError(
                    f"the data directory {path} is in use by another worker: each needs its own "
                    "--data-dir"
                ) from None
            time.sleep(_PAUSE_S)
        else:
            return
