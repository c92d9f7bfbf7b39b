"""User ids of process VMs: each VM has its own, so that it cannot touch another's process."""

import os
import threading
from itertools import count
from pathlib import Path
from typing import Final

STAYS: Final = -1
"""Stands for the host's own user."""

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_taken: Final[set[int]] = set()
_lock: Final = threading.Lock()
# hosts on one machine do not know each other, so each begins at another number
_numbers: Final = count(os.getpid() * 64)


def take_uid(first: int, amount: int) -> int:
    """Return a user id for a child that no other child of this process has.

    The result is ``STAYS`` if this process may not change users, or all ids are taken.
    """
    if not _may_change_user():
        return STAYS
    with _lock:
        for _ in range(amount):
            uid = first + next(_numbers) % amount
            if uid not in _taken:
                _taken.add(uid)
                return uid
    return STAYS


def return_uid(uid: int) -> None:
    """Free an id for another child; do nothing if it was not taken."""
    with _lock:
        _taken.discard(uid)


def _may_change_user() -> bool:
    # without CAP_KILL the host could not end a child of another user
    if os.geteuid() != 0:
        return False
    try:
        with Path("/proc/self/status").open(encoding="ascii") as status:
            (held,) = (int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    except (OSError, ValueError):
        return False
    return all(held >> cap & 1 for cap in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))
