"""Files and folders that survive a power cut: the one way in which they are written.

A file is written beside its place, flushed to the disk, renamed, and its folder is flushed:
a reader, or a cut at any point, finds the old one or the new one, and what was put stays. A
folder is there for good once the folder above it was flushed.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from walle_stream.errors import StoreError, StoreFullError

FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the system's errors of a full disk."""

_NO_FLUSH: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


def put_file(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o644,
    part: Path | None = None,
    on_part: Callable[[], None] = lambda: None,
) -> None:
    """Write a file whole, or leave what is there; blocks on the disk.

    The folder exists. ``part`` is written first, on the same disk (None: a hidden name beside it
    that ends with this process's number); ``on_part`` is called before it gets its name.
    """
    with placing(path, part) as own:
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        on_part()


@contextmanager
def placing(path: Path, part: Path | None = None) -> Iterator[Path]:
    """Give a file its name once it is written whole; blocks on the disk.

    Within, the caller writes and flushes the file that it is given; a failure removes that one.
    """
    # "." and "/" have no name
    own = part or path.parent / f".{uuid4().hex}.{os.getpid()}"
    try:
        yield own
        place_file(own, path)
    except BaseException:
        own.unlink(missing_ok=True)
        raise


def place_file(part: Path, path: Path) -> None:
    """Give a flushed file, or folder of such, its name for good; blocks on the disk.

    Both are on one disk; a file that lies there is replaced.
    """
    part.replace(path)
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, for good; blocks on the disk where one is made."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut; blocks on the disk.

    Raises:
        OSError: The disk failed. Shared file systems that flush no folder are passed over.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
    finally:
        os.close(descriptor)


def refusal(error: OSError, message: str) -> StoreError:
    """Return our error for one of the disk: whether it is full, or anything else."""
    return (StoreFullError if error.errno in FULL_DISK else StoreError)(message)


def flush_file(path: Path) -> None:
    """Make a file that others wrote survive a power cut, unless it is gone; blocks."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())
