"""Marks of partitions that are in a VM's call, in memory that outlives the process.

A small mapped file has a byte per partition, and one for each start, when scripts are loaded. The
kernel keeps the stored bytes, whatever the process dies of. The next process that opens the file
sees the calls of that time, one of which may have ended the process.
"""

import mmap
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from walle_stream.store.locks import LOCKS_TIMEOUT_S, lock_within

_IDLE: Final = 0
_IN_HAND: Final = 1
_DOUBTFUL: Final = 2
"""In a call when the last process ended; stays until the partition is known to be past it."""


class InHand:
    """Marks of a data directory's partitions. Each partition's thread changes its own.

    Several processes may have the file open, each for its own partitions. The mapping is never
    closed, only dropped: a late thread at the end must still find it.
    """

    def __init__(self, path: Path, marks: mmap.mmap, own: Collection[int]) -> None:
        """Wrap the mapped file; use ``open``."""
        self._path = path
        self._marks = marks
        self._own = own
        for number in own:
            if marks[number] != _IDLE:
                marks[number] = _DOUBTFUL

    @classmethod
    def open(cls, path: Path, count: int, own: Collection[int] | None = None) -> Self:
        """Open or make the file for ``count`` partitions; ``own`` are this process's (None: all).

        A partition has one owner at a time. An owner of all partitions makes the file.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # written, not only extended: storing into a hole of a file on a full disk would be a
            # fatal signal
            size = len(os.pread(file, count, 0))
            os.pwrite(file, bytes(count - size), size)
            return cls(path, mmap.mmap(file, count), range(count) if own is None else own)
        finally:
            os.close(file)

    def adopt(self, number: int) -> None:
        """Take over a partition from another process."""
        if self._marks[number] != _IDLE:
            self._marks[number] = _DOUBTFUL
        self._own = {*self._own, number}

    @contextmanager
    def in_line(self, number: int) -> Iterator[None]:
        """Take over a number that processes use in turn, and release it at the end.

        Blocks while another process has the number, so that a mark there is of a dead process; for
        15 s at most. After that even the mark of a living process counts as doubt. Once per
        process.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock_within(file, LOCKS_TIMEOUT_S, number)
            self.adopt(number)
            yield
        finally:
            os.close(file)  # releases the lock, as the end of the process does

    def is_doubtful(self, number: int) -> bool:
        """Return whether a partition was in a call when the last process ended."""
        return self._marks[number] == _DOUBTFUL

    def mark(self, number: int) -> None:
        """Record that a partition is about to call a VM."""
        if self._marks[number] == _IDLE:
            self._marks[number] = _IN_HAND

    def put_down(self, number: int) -> None:
        """Record the end of a partition's call; a doubt stays."""
        if self._marks[number] == _IN_HAND:
            self._marks[number] = _IDLE

    def put_down_all(self) -> None:
        """Clear all marks of this process, because the cause of its coming end is known."""
        for number in self._own:
            self.put_down(number)

    def settle(self, number: int) -> None:
        """Record that a partition is past the calls in doubt."""
        self._marks[number] = _IDLE
