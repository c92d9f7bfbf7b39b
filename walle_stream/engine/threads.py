"""How many threads numpy's products of matrices take: what can be said of it, and set.

numpy hands products of matrices to a BLAS library, which has threads of its own;
everything else that numpy does is done by the thread that asks. The number is
the library's, so the whole process's: two runs cannot have two numbers at a time.
While several runs with a number go on, the smallest of them holds, and when the
last one ends, what was before them. numpy's own wheels have OpenBLAS; others
(Accelerate, MKL) are left alone, with a line in the log.
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
"""What stands around the functions' names in the builds of OpenBLAS."""


class BlasThreads:
    """The number of threads of one BLAS library. Thread-safe."""

    def __init__(self, read: Any, write: Any) -> None:
        """Take over."""
        self._read = read
        self._write = write
        self._lock = threading.Lock()
        self._wanted: Counter[int] = Counter()
        self._before = 0

    @property
    def count(self) -> int:
        """The number now."""
        return int(self._read())

    @contextmanager
    def limited(self, count: int) -> Iterator[None]:
        """Hold a number from 1 for as long as a block takes; does not wait for other blocks."""
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
    """Find the library that numpy has loaded; None where it is no OpenBLAS."""
    try:
        core = import_module("numpy._core._multiarray_umath")  # private: it may be gone
        # a name is looked for in the libraries that this one needs, too
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
    """Refuse a number of threads that cannot be had; at most the cores. None leaves the library's.

    Raises:
        EngineError: It is no number from 1, or numpy's library takes none.
    """
    if count is None:
        return None
    if type(count) is not int or count < 1:
        raise EngineError(f"threads={count!r} is no whole number from 1")
    if blas_threads() is None:
        raise EngineError(
            f"threads={count}: numpy has no OpenBLAS here, whose threads could be set; leave"
            " threads out, and set the variable of its library before the start instead"
        )
    return min(count, os.cpu_count() or count)


def run_with(count: int | None) -> AbstractContextManager[None]:
    """Hold a number of ``checked_threads`` for as long as a run takes; None changes nothing."""
    if count is None or (library := blas_threads()) is None:
        return nullcontext()
    return library.limited(count)
