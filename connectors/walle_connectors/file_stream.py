"""The bytes of a file, decompressed, and what identifies it; for all connectors of files."""

import gzip
import io
import os
import zlib
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, cast

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.ports import Unread

READ_ERRORS: Final = (OSError, EOFError, zlib.error)
"""What reading may raise: the disk's errors, and cut or damaged gzip data."""

HEAD_BYTES: Final = 65_536
"""How much of a file's decompressed beginning its fingerprint covers."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


def read_head(path: Path, size: int) -> bytes:
    """Return the beginning of a file, decompressed.

    Args:
        path: The file.
        size: How many bytes; fewer if it has no more.

    Raises:
        SourceError: It cannot be read.
    """
    stream = FileStream(path)
    try:
        return stream.bytes.read(size)
    except READ_ERRORS as error:
        raise SourceError(
            f"source {stream.name!r} cannot be read ({error}): repair the file"
        ) from error
    finally:
        stream.close()


class FileStream:
    """An open file; gzip is recognised by its first bytes.

    One thread reads and closes; any thread may ask for ``progress`` and ``unread``.
    """

    def __init__(self, path: Path, buffer_bytes: int = 262_144) -> None:
        """Open the file at its beginning, behind a byte order mark.

        Args:
            path: As the user gave it.
            buffer_bytes: What is read ahead for ``readline``; larger reads pass by it.

        Raises:
            SourceNotFoundError: It cannot be opened.
        """
        self.name = path.name
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise SourceNotFoundError(
                f"source {str(path)!r} cannot be opened ({error.strerror}): correct "
                "spec.source.path"
            ) from error
        self._size = os.fstat(self._file.fileno()).st_size
        is_gzip = self._file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        self._file.seek(0)
        self._gzip = gzip.GzipFile(fileobj=self._file, mode="rb") if is_gzip else None
        raw = cast("io.RawIOBase", self._file if self._gzip is None else self._gzip)
        self.bytes: BinaryIO = io.BufferedReader(raw, buffer_bytes)
        """Decompressed; ``readline`` takes a bound."""
        # who asks how far it is must not meet a file that is half closed
        self._closing = Lock()

    def skip_mark(self) -> None:
        """Go behind a byte order mark, if there is one.

        Raises:
            OSError: The file cannot be read.
        """
        if cast("io.BufferedReader", self.bytes).peek(len(_BOM)).startswith(_BOM):
            self.bytes.read(len(_BOM))

    @property
    def progress(self) -> float:
        """Share of the file that was read, 0–1."""
        with self._closing:
            if self._file.closed or not self._size:
                return 1.0
            return min(self._position() / self._size, 1.0)

    @property
    def unread(self) -> Unread:
        """Bytes behind what was read, in the file as it is now; none of a closed one."""
        with self._closing:
            if self._file.closed:
                return Unread(size_bytes=0)
            size = os.fstat(self._file.fileno()).st_size
            return Unread(size_bytes=max(size - self._position(), 0))

    def _position(self) -> int:
        # what is decompressed has no place of its own in the file: then with what is read ahead
        return self.bytes.tell() if self._gzip is None else self._file.tell()

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._closing:
            self.bytes.close()
            if self._gzip is not None:
                self._gzip.close()
            self._file.close()
