"""Which partitions are in a VM's call, in memory that outlives the process.

A byte per partition in a small mapped file, and one for the start, when scripts
are loaded: the kernel keeps what was stored there, whatever the process dies of.
The next process that opens the file sees what was in a call, one of which may have been
the end of the process.
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
"""In a call when the last process ended; it stays so until it is known to be past that."""


class InHand:
    """The bytes of a data directory's partitions. Each partition's thread changes its own.

    Several processes may have the file open, each for partitions of its own. Never
    closed but let go: a thread that is late at the end must find it mapped.
    """

    def __init__(self, path: Path, marks: mmap.mmap, own: Collection[int]) -> None:
        """Wrap; use ``open``."""
        self._path = path
        self._marks = marks
        self._own = own
        for number in own:
            if marks[number] != _IDLE:
                marks[number] = _DOUBTFUL

    @classmethod
    def open(cls, path: Path, count: int, own: Collection[int] | None = None) -> Self:
        """Open the file, or make it, for ``count`` partitions; ``own`` (None: all) are ours.

        A partition has one owner at a time; an owner of all of them made the file.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # written, not only made longer: storing into a hole of a file on a full
            # disk would be a fatal signal
            size = len(os.pread(file, count, 0))
            os.pwrite(file, bytes(count - size), size)
            return cls(path, mmap.mmap(file, count), range(count) if own is None else own)
        finally:
            os.close(file)

    def adopt(self, number: int) -> None:
        """Take over a partition that another process had before."""
        if self._marks[number] != _IDLE:
            self._marks[number] = _DOUBTFUL
        self._own = {*self._own, number}

    @contextmanager
    def in_line(self, number: int) -> Iterator[None]:
        """Take over a number that processes have in turns, and let go of it at the end.

        Blocks while another process has it, so that what is marked there is of a dead one; for 15 s
        at most: beyond that the mark of a living one is doubt, too. Once per process.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock_within(file, LOCKS_TIMEOUT_S, number)
            self.adopt(number)
            yield
        finally:
            os.close(file)  # and with it the lock, as when the process dies

    def is_doubtful(self, number: int) -> bool:
        """Whether a partition was in a call when the last process ended."""
        return self._marks[number] == _DOUBTFUL

    def mark(self, number: int) -> None:
        """Note that a partition is about to call a VM."""
        if self._marks[number] == _IDLE:
            self._marks[number] = _IN_HAND

    def put_down(self, number: int) -> None:
        """Note that a partition has done with its call; one in doubt stays so."""
        if self._marks[number] == _IN_HAND:
            self._marks[number] = _IDLE

    def put_down_all(self) -> None:
        """Put all down, because it is known what the process is about to end of."""
        for number in self._own:
            self.put_down(number)

    def settle(self, number: int) -> None:
        """Note that a partition is past what it was in doubt of."""
        self._marks[number] = _IDLE
