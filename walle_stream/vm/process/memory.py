"""Memory that the host of a process VM shares with its child."""

import fcntl
import mmap
import os
import tempfile
from contextlib import suppress


class SharedMemory:
    """Memory of the host that a child sees through an inherited descriptor."""

    def __init__(self, size_bytes: int) -> None:
        """Make the memory, filled with zeros."""
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("walle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            # if a child could shrink it, the host's next access would be a fatal signal
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        self._file_bytes = 0
        self._map(size_bytes)

    def grow(self, size_bytes: int) -> None:
        """Enlarge the memory and keep its contents; the child's view stays the same."""
        self._close_view()
        self._map(size_bytes)

    def give_back(self, kept_bytes: int) -> None:
        """Return whole pages beyond ``kept_bytes`` to the system; they read as zeros again."""
        if hasattr(mmap, "MADV_REMOVE") and kept_bytes < len(self.view):
            with suppress(OSError):
                self._map_.madvise(mmap.MADV_REMOVE, kept_bytes, len(self.view) - kept_bytes)

    def close(self) -> None:
        """Free the memory and the descriptor; may be called twice."""
        self._close_view()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _map(self, size_bytes: int) -> None:
        if size_bytes > self._file_bytes:
            os.ftruncate(self.fd, size_bytes)
            self._file_bytes = size_bytes
        self._map_ = mmap.mmap(self.fd, size_bytes, trackfd=False)
        self.view = memoryview(self._map_)

    def _close_view(self) -> None:
        with suppress(BufferError):  # another view exists, and the last one frees the memory
            self.view.release()
            self._map_.close()
