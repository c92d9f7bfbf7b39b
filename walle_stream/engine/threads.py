"""The number of threads for numpy's matrix products, which can be read and set.

numpy passes matrix products to a BLAS library, which has threads of its own; the calling thread
does all other work. The number belongs to the library, hence to the whole process: two runs cannot
have different numbers at a time. During several runs with a number the smallest one holds. After
the last of them the previous number is restored. numpy's own wheels have OpenBLAS. The number of
other libraries (Accelerate, MKL) is never set.
"""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, Final

from walle_stream.errors import EngineError

_NAMES: Final = (
    ("scipy_openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", "64_"), ("openblas_", ""),
)  # fmt: skip
"""Prefixes and suffixes of the functions' names in builds of OpenBLAS."""


class BlasThreads:
    """The number of threads of one BLAS library. Thread-safe."""

    def __init__(self, read: Any, write: Any) -> None:
        """Take over the library's functions that read and set the number."""
        self._read = read
        self._write = write
        self._lock = threading.Lock()
        self._wanted: Counter[int] = Counter()
        self._before = 0

    @property
    def count(self) -> int:
        """The current number of threads."""
        return int(self._read())

    @contextmanager
    def limited(self, count: int) -> Iterator[None]:
        """Hold a number, at least 1, for the duration of a block; never waits for other blocks."""
        with self._lock:
            if not self._wanted:
                self._before = self.count
            self._wanted[count] += 1
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._wanted[count] -= 1
                if not self._wanted[count]:
                    del self._wanted[count]
                self._apply()

    def _apply(self) -> None:
        wanted = min(self._wanted, default=self._before)
        if self.count != wanted:
            self._write(wanted)


@cache
def blas_threads() -> BlasThreads | None:
    """Return the OpenBLAS that numpy has loaded, or None if numpy has another library."""
    try:
        core = import_module("numpy._core._multiarray_umath")  # private: it may disappear
        # a look-up also searches the libraries on which this one depends
        library = ctypes.CDLL(core.__file__)
    except (ImportError, OSError, TypeError):
        return None
    for prefix, suffix in _NAMES:
        read = getattr(library, f"{prefix}get_num_threads{suffix}", None)
        write = getattr(library, f"{prefix}set_num_threads{suffix}", None)
        if read is not None and write is not None:
            read.restype, read.argtypes = ctypes.c_int, ()
            write.restype, write.argtypes = None, (ctypes.c_int,)
            return BlasThreads(read, write)
    return None


def checked_threads(count: int | None) -> int | None:
    """Check a number of threads, and limit it to the number of cores; None keeps the library's.

    Raises:
        EngineError: The number is not a positive integer, or numpy's library takes none.
    """
    if count is None:
        return None
    if type(count) is not int or count < 1:
        raise EngineError(f"threads={count!r} is not a whole number from 1")
    if blas_threads() is None:
        raise EngineError(
            f"threads={count}: numpy has no OpenBLAS here, so its threads cannot be set; omit"
            " threads, and set the environment variable of its library before the start instead"
        )
    return min(count, os.cpu_count() or count)


def run_with(count: int | None) -> AbstractContextManager[None]:
    """Hold a number from ``checked_threads`` during a run; None changes nothing."""
    if count is None or (library := blas_threads()) is None:
        return nullcontext()
    return library.limited(count)
