"""Where an embedded Ray cluster keeps its sockets and logs, also after drivers that were killed.

A folder is locked by the driver that made it. A driver that was killed leaves it
behind; the next one finds it unlocked and removes it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "walle-ray-"
_LOCK: Final = "walle.lock"


@contextmanager
def cluster_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a cluster's folder, removed behind it, and remove those of dead drivers; blocks.

    Without a parent it lies where its name is short.
    """
    parent = parent or _short_place()
    for left in parent.glob(f"{_PREFIX}*"):
        _remove_dead(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _short_place() -> Path:
    # sockets lie in it, and a socket's path has at most 107 bytes
    short = Path("/tmp")  # noqa: S108 - its folder has a name that nobody can guess
    if short.is_dir() and os.access(short, os.W_OK):
        return short
    return Path(tempfile.gettempdir())


def _remove_dead(folder: Path) -> None:
    # one without a lock file is being made; another user's cannot be opened
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
