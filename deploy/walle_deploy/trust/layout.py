"""The folders and files of a repository, and atomic writes.

::

    FOLDER/LOCK                                the lock of the one writing command
    FOLDER/public/metadata/timestamp.json      names the newest snapshot; replaced last
    FOLDER/public/metadata/N.ROLE.json         signed; never changed after it is named
    FOLDER/public/metadata/tree/ab/SHA256      nodes of the trees of exclusive files
    FOLDER/public/targets/ab/SHA256            shared files, by content
    FOLDER/private/exclusive/ab/SHA256         exclusive files, by content
    FOLDER/keys/                               private keys; may be elsewhere

A static server serves ``public`` to everybody, and must serve nothing else.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from walle_stream.errors import ConflictError, RefNotFoundError, StoreFullError
from walle_stream.store import files
from walle_stream.store.files import FULL_DISK, make_folder, place_file
from walle_stream.store.locks import lock_within

METADATA: Final = "public/metadata"
TARGETS: Final = "public/targets"
TREE: Final = "public/metadata/tree"
PRIVATE: Final = "private"
EXCLUSIVE: Final = f"{PRIVATE}/exclusive"
RETIRED: Final = f"{PRIVATE}/retired"

_CHUNK_BYTES: Final = 1024 * 1024


def blob_path(sha256: str) -> str:
    """Return a file's path below its folder, for 64 lower-case hexadecimal digits."""
    return f"{sha256[:2]}/{sha256}"


@contextmanager
def full_disk(path: Path | str) -> Iterator[None]:
    """Turn the error of a full disk into ``StoreFullError``.

    Raises:
        OSError: Any other error, unchanged.
        StoreFullError: The disk is full; the code within keeps the old state then.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise StoreFullError(
            f"{path}: the disk is full: nothing was changed; free some space"
        ) from error


def put_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file atomically: readers see the old or the new one, also after a kill.

    Raises:
        StoreFullError: The disk is full; nothing was changed.
    """
    with full_disk(path):
        make_folder(path.parent)
        files.put_file(path, data, mode=mode)


def put_blob(folder: Path, content: bytes | Path) -> tuple[str, int]:
    """Store content under its hash, if it is missing; return its SHA-256 and size in bytes.

    Raises:
        RefNotFoundError: The source file does not exist or cannot be read.
        StoreFullError: The disk is full; nothing was changed.
    """
    part = folder / f".{uuid4().hex}"
    digest, size_bytes = hashlib.sha256(), 0
    with full_disk(folder):
        try:
            make_folder(folder)
            with part.open("xb") as file:
                for chunk in _chunks(content):
                    digest.update(chunk)
                    size_bytes += len(chunk)
                    file.write(chunk)
                part.chmod(0o644)
                file.flush()
                os.fsync(file.fileno())
            path = folder / blob_path(digest.hexdigest())
            make_folder(path.parent)
            place_file(part, path)
        finally:
            part.unlink(missing_ok=True)
    return digest.hexdigest(), size_bytes


def remove_parts(folder: Path, before_ms: int) -> None:
    """Remove temporary files of killed writers that are older than a time in epoch ms."""
    for path in folder.glob(".*") if folder.is_dir() else ():
        if path.is_file() and path.stat().st_mtime * 1_000 < before_ms:
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a folder's lock, exclusive or shared. A killed process releases it. Blocks."""
    with (folder / "LOCK").open("ab") as lock:
        fcntl.flock(lock, how)
        yield


@contextmanager
def sole_writer(folder: Path, wait_s: float = 10.0) -> Iterator[None]:
    """Hold a repository's lock. A killed process releases it.

    Raises:
        ConflictError: Another command still holds it after ``wait_s``.
        RefNotFoundError: The folder cannot be made.
    """
    try:
        make_folder(folder)
    except OSError as error:
        raise RefNotFoundError(
            f"{folder}: the folder cannot be made: {error.strerror}: name another folder"
        ) from error
    with (folder / "LOCK").open("ab") as lock:
        if not lock_within(lock.fileno(), wait_s):
            raise ConflictError(
                f"{folder}: another command is writing to this repository: repeat this command "
                "after it"
            )
        yield


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    try:
        with content.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise RefNotFoundError(
            f"{content}: cannot be read: {error.strerror}: check the path"
        ) from error
