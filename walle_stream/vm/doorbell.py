"""A doorbell between two threads, even of different interpreters.

A blocked read of a file descriptor is the only wait that two interpreters can
share without polling: locks and conditions belong to one interpreter, and
interpreter queues poll. An eventfd costs one system call on each side. A pipe
replaces it on systems without eventfd (macOS).
"""

import os
import select
from contextlib import suppress

from walle_stream.vm.guest.layout import RING


class Doorbell:
    """Signal between threads. Any thread may ring; only one at a time may wait."""

    __slots__ = ("read_fd", "write_fd")

    def __init__(self) -> None:
        """Open the descriptors; child processes do not inherit them."""
        if hasattr(os, "eventfd"):
            self.read_fd = self.write_fd = os.eventfd(0, os.EFD_CLOEXEC)
        else:
            self.read_fd, self.write_fd = os.pipe()

    def ring(self) -> None:
        """Wake the waiting thread, or the next one that waits; does not block."""
        os.write(self.write_fd, RING)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until a ring or the timeout; return whether it rang.

        The wait releases the interpreter's lock.
        """
        if timeout_s is not None:
            poll = select.poll()
            poll.register(self.read_fd, select.POLLIN)
            if not poll.poll(timeout_s * 1000.0):
                return False
        os.read(self.read_fd, len(RING))
        return True

    def close(self) -> None:
        """Close the descriptors; no thread may wait any more."""
        for fd in {self.read_fd, self.write_fd}:
            with suppress(OSError):
                os.close(fd)
