"""Folder for the sockets and logs of an embedded Ray cluster.

The driver that makes a folder locks it. A killed driver leaves its folder behind; the next driver
finds it unlocked and removes it.
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
    """Make a cluster's folder, removed on exit, and remove those of dead drivers; blocks.

    Without a parent the folder lies in a place with a short path.
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
    # the folder holds sockets, and a socket's path has at most 107 bytes
    short = Path("/tmp")  # noqa: S108 - the folder gets an unguessable name
    if short.is_dir() and os.access(short, os.W_OK):
        return short
    return Path(tempfile.gettempdir())


def _remove_dead(folder: Path) -> None:
    # a folder without a lock file is being made; another user's folder cannot be opened
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
