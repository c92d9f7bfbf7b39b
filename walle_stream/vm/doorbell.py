"""A doorbell between two threads, also of different interpreters.

A blocked read of a file descriptor is the only wait that two interpreters
share without polling: locks and conditions belong to one interpreter, its
queues poll. An eventfd costs one system call at each side; where there is
none (macOS), a pipe does the same.
"""

import os
import select
from contextlib import suppress

from walle_stream.vm.guest.layout import RING


class Doorbell:
    """Rings and waits. Any thread may ring, one at a time waits."""

    __slots__ = ("read_fd", "write_fd")

    def __init__(self) -> None:
        """Make it; not inherited by child processes."""
        if hasattr(os, "eventfd"):
            self.read_fd = self.write_fd = os.eventfd(0, os.EFD_CLOEXEC)
        else:
            self.read_fd, self.write_fd = os.pipe()

    def ring(self) -> None:
        """Wake the waiting thread, or the next one that waits; does not block."""
        os.write(self.write_fd, RING)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until somebody rings, for so long at most; says whether it rang.

        Lets go of the interpreter's lock.
        """
        if timeout_s is not None:
            poll = select.poll()
            poll.register(self.read_fd, select.POLLIN)
            if not poll.poll(timeout_s * 1000.0):
                return False
        os.read(self.read_fd, len(RING))
        return True

    def close(self) -> None:
        """Give the descriptors back; nobody may wait any more."""
        for fd in {self.read_fd, self.write_fd}:
            with suppress(OSError):
                os.close(fd)
