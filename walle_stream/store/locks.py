"""Kernel locks on files, and waits for the owners of databases that are ending.

A process that was cut off from its run continues for some seconds and holds its databases.
RocksDB's lock is a kernel lock on a file: it goes with the process, whatever the process dies of.
"""

import fcntl
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import StoreLockedError

_log = logging.getLogger(__name__)

LOCKS_TIMEOUT_S: Final = 15.0
"""Maximum wait for processes that were cut off; Ray ends them within seconds."""

_RETRY_S: Final = 0.05


def wait_for_locks(databases: Sequence[Path], timeout_s: float = LOCKS_TIMEOUT_S) -> None:
    """Wait until no other process has the databases open; blocks.

    Do not use it for databases that this process has open, as checking a lock would release it.
    Missing folders count as free.

    Raises:
        StoreLockedError: An owner did not end in time.
    """
    deadline_ms = monotonic_ms() + timeout_s * 1000.0
    is_told = False
    for path in databases:
        while _is_locked(path / "LOCK"):
            if monotonic_ms() >= deadline_ms:
                raise StoreLockedError(
                    f"the database {path} is in use by another process after {timeout_s:g} s: stop "
                    "that process, or give another --data-dir"
                )
            if not is_told:
                is_told = True
                _log.warning(
                    "the database %s is still in use by a process that is ending: waiting up to "
                    "%g s",
                    path,
                    timeout_s,
                )
            time.sleep(_RETRY_S)


def try_lock(lock: int, kind: int = fcntl.LOCK_EX, byte: int | None = None) -> bool:
    """Lock an open file if it is free; return whether it is locked.

    With ``byte``, lock only this byte for this process, until the process closes any handle of the
    file.
    """
    try:
        if byte is None:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        else:
            fcntl.lockf(lock, kind | fcntl.LOCK_NB, 1, byte)
    except BlockingIOError:
        return False
    return True


def lock_within(lock: int, timeout_s: float, byte: int | None = None) -> bool:
    """Lock an open file exclusively; return whether that succeeded in time. Blocks.

    For ``byte`` see ``try_lock``.
    """
    deadline_ms = monotonic_ms() + timeout_s * 1000.0
    while not try_lock(lock, byte=byte):
        if monotonic_ms() >= deadline_ms:
            return False
        time.sleep(_RETRY_S)
    return True


def is_file(opened: int, path: Path) -> bool:
    """Return whether an open file or folder is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
