"""Files of a device by content: each is complete and verified, or missing.

::

    blobs/ab/SHA256        complete, verified, read-only
    blobs/incoming/SHA256  partly received; the next attempt continues it
    blobs/LOCK             shared lock for writers, exclusive lock for removal

Any number of threads and processes share a folder. The second writer of a file waits for the
first. A killed writer's locks are released.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import BinaryIO, Final

from walle_deploy.trust.layout import blob_path, full_disk, locked
from walle_stream.clock import wall_ms
from walle_stream.errors import IntegrityError
from walle_stream.store.files import FULL_DISK, make_folder, place_file
from walle_stream.store.locks import is_file

KEPT_MS: Final = 3_600_000
"""Age in ms after which a file without a record may be removed."""


class BlobStore:
    """A folder of verified files."""

    def __init__(self, folder: Path) -> None:
        """Make the folder."""
        self.folder = folder
        make_folder(folder / "incoming")

    def path(self, sha256: str) -> Path:
        """Return the path of a file, whether it exists or not."""
        return self.folder / blob_path(sha256)

    def store(self, sha256: str, size_bytes: int, fill: Callable[[BinaryIO, int], None]) -> Path:
        """Return a file's path; fetch the file if it is missing or corrupt.

        ``fill`` writes the missing bytes into a file from an offset on; it may restart at 0.

        Raises:
            IntegrityError: The received file does not match; it was removed.
            OSError: ``fill`` raised this.
            StoreFullError: The disk is full; nothing was changed.
        """
        path, part = self.path(sha256), self.folder / "incoming" / sha256
        with full_disk(path), locked(self.folder, fcntl.LOCK_SH), _sole_file(part) as file:
            if _is_right(path, sha256, size_bytes):
                os.utime(path)  # keep it until its record names it
                part.unlink()
                return path
            have_bytes = file.seek(0, os.SEEK_END)
            if have_bytes > size_bytes:
                file.truncate(0)
                have_bytes = 0
            try:
                if have_bytes < size_bytes:
                    fill(file, have_bytes)
                file.flush()
            except OSError as error:
                if error.errno in FULL_DISK:
                    part.unlink()  # free the space for others
                raise
            if not _is_right(part, sha256, size_bytes):
                part.unlink()
                raise IntegrityError(
                    f"{sha256[:12]}...: the file that was received is not the one that was "
                    f"signed ({size_bytes} bytes): it was altered, or cut; it was not used"
                )
            part.chmod(0o444)
            os.fsync(file.fileno())
            make_folder(path.parent)
            place_file(part, path)
        return path

    def read(self, sha256: str) -> bytes:
        """Return a file's content, verified once more because disks fail.

        Raises:
            IntegrityError: The file is missing or corrupt.
        """
        try:
            data = self.path(sha256).read_bytes()
        except OSError as error:
            raise IntegrityError(
                f"{self.path(sha256)}: the file is missing ({error.strerror}): pull it again"
            ) from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise IntegrityError(f"{self.path(sha256)}: is not what was stored: pull it again")
        return data

    def collect(self, named: Collection[str], kept_ms: int = KEPT_MS) -> int:
        """Remove files without a record that were not used lately; return their number.

        ``kept_ms`` must be longer than a pull and its record take. With 0, all files without a
        record are removed.
        """
        before_s, count = (wall_ms() - kept_ms) / 1_000 if kept_ms else inf, 0
        with locked(self.folder):
            for path in self.folder.glob("*/*"):
                if path.name not in named and path.stat().st_mtime <= before_s:
                    path.unlink()
                    count += 1
        return count


@contextmanager
def _sole_file(path: Path) -> Iterator[BinaryIO]:
    while True:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # the previous holder may have renamed or removed the file
            if is_file(file.fileno(), path):
                yield file
                return


def _is_right(path: Path, sha256: str, size_bytes: int) -> bool:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != size_bytes:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False
