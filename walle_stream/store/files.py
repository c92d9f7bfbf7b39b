"""Files and folders that survive a power cut: the only way in which they are written.

A file is written beside its place, flushed to the disk and renamed; then its folder is flushed. A
reader, or a power cut at any point, finds the old or the new file, and a written file stays. A
folder is durable once the folder above it was flushed.
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
"""Error numbers of a full disk."""

_NO_FLUSH: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


def put_file(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o644,
    part: Path | None = None,
    on_part: Callable[[], None] = lambda: None,
) -> None:
    """Write a whole file, or leave the existing one; blocks on the disk.

    The folder exists. ``part`` is the path to write first, on the same disk (None: a hidden name in
    the folder that ends with this process's id). ``on_part`` is called before the rename.
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
    """Yield a path for a file, and rename the file when it is written; blocks on the disk.

    The caller writes and flushes the file at the yielded path; after a failure it is removed.
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
    """Give a flushed file, or a folder of such files, its final name; blocks on the disk.

    Both paths are on one disk; an existing file is replaced.
    """
    part.replace(path)
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and its parents, durably; blocks on the disk if one is made."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut; blocks on the disk.

    Raises:
        OSError: The disk failed. Shared file systems that cannot flush folders are ignored.
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
    """Return our error for an error of the disk: ``StoreFullError`` or ``StoreError``."""
    return (StoreFullError if error.errno in FULL_DISK else StoreError)(message)


def flush_file(path: Path) -> None:
    """Make a file written by others survive a power cut, unless it is gone; blocks."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())
