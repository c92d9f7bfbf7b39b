"""A source of one file: its decompressed bytes and its identity."""

import gzip
import io
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import IO, BinaryIO, ClassVar, Final, cast, override

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.ports import SourceReader, Unread
from walle_stream.reading import LaneReader, LaneSource, Opening, Position
from walle_stream.reading.dead_letters import text_digest

READ_ERRORS: Final = (OSError, EOFError, zlib.error)
"""Errors of reading: the disk's, and those of cut or damaged gzip data."""

_HEAD_BYTES: Final = 65_536  # decompressed bytes at the beginning that the fingerprint covers
_TAIL_BYTES: Final = 131_072
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


class FileStream:
    """An open file; gzip is recognised by its first bytes.

    One thread reads and closes; any thread may call ``progress``, ``unread`` and ``tail``.
    """

    def __init__(self, path: Path, buffer_bytes: int = 262_144) -> None:
        """Open the file at its beginning.

        ``buffer_bytes`` are read ahead for ``readline``; larger reads bypass the buffer.

        Raises:
            SourceNotFoundError: The file cannot be opened.
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
        """The decompressed bytes; ``readline`` takes a bound."""
        # a thread that reads the progress must not find the file half closed
        self._closing = Lock()

    def skip_mark(self) -> None:
        """Skip a byte order mark, if there is one; may raise ``OSError``."""
        if self.peek(len(_BOM)) == _BOM:
            self.bytes.read(len(_BOM))

    def peek(self, size: int) -> bytes:
        """Return at most ``size`` next bytes without consuming them; blocks on the file."""
        return cast("io.BufferedReader", self.bytes).peek(size)[:size]

    @property
    def progress(self) -> float:
        """Share of the file that has been read, 0–1."""
        with self._closing:
            if self._file.closed or not self._size:
                return 1.0
            return min(self._position() / self._size, 1.0)

    @property
    def unread(self) -> Unread:
        """Bytes of the file, at its present size, that are still unread; 0 once it is closed."""
        with self._closing:
            if self._file.closed:
                return Unread(size_bytes=0)
            size = os.fstat(self._file.fileno()).st_size
            return Unread(size_bytes=max(size - self._position(), 0))

    def tail(self) -> bytes:
        """Return the last bytes of the file at its present size; nothing if it is compressed."""
        with self._closing:
            if self._file.closed or self._gzip is not None:
                return b""
            number = self._file.fileno()
            return os.pread(number, _TAIL_BYTES, max(os.fstat(number).st_size - _TAIL_BYTES, 0))

    def failure(self, place: str, error: BaseException) -> SourceError:
        """Return the error of a file whose reading failed at ``place``."""
        return SourceError(
            f"source {self.name!r} cannot be read {place} ({error}): repair the file and run "
            "again; earlier events are kept"
        )

    def _position(self) -> int:
        # decompressed bytes have no place in a gzip file: its position includes read-ahead bytes
        return self.bytes.tell() if self._gzip is None else self._file.tell()

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._closing:
            self.bytes.close()
            if self._gzip is not None:
                self._gzip.close()
            self._file.close()


@contextmanager
def written(file: Path) -> Iterator[IO[bytes]]:
    """Yield a new file to write, compressed if its name ends in ``.gz``; it appears whole or not.

    Raises:
        SourceError: The file cannot be written.
    """
    part = file.with_name(file.name + ".part")
    try:
        # no time in the gzip header: the same content gives the same bytes
        with (
            part.open("wb") as plain,
            gzip.GzipFile("", "wb", 6, plain, mtime=0) if file.suffix == ".gz" else plain as out,
        ):
            yield out  # type: ignore[misc]
        part.replace(file)
    except OSError as error:
        raise SourceError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


class FileReader[P: Position](LaneReader[P]):
    """Reader of a file, opened at its partitions' offsets. For one thread."""

    def __init__(
        self, stream: FileStream, opening: Opening, beginning: P, max_record_bytes: int
    ) -> None:
        """Begin at the offsets of ``opening``; see ``LaneReader``. Takes over the stream.

        The stream is at its beginning. A partition without an offset begins at ``beginning``.

        Raises:
            SourceError: An offset does not belong to such a file.
            SourceChangedError: The file differs from the file that was read before.
            SourceFormatError: The file's header is damaged or of another version.
        """
        super().__init__(opening, beginning)
        self._stream, self._name, self._max_bytes = stream, stream.name, max_record_bytes
        self._start(sorted((lane.done for lane in self._lanes.values()), key=attrgetter("place")))

    def _start(self, positions: Sequence[P]) -> None:
        """Check that all positions belong to this file, then go to the first."""

    @override
    @property
    def progress(self) -> float:
        """Share of the file that has been read, 0–1."""
        return self._stream.progress

    @override
    @property
    def unread(self) -> Unread:
        """Unread bytes of the file, and the time to its last row."""
        left, tail = self._stream.unread, self._stream.tail()
        time_ms = self._behind_ms(self._time_of(tail) if tail else -1) if left.size_bytes else 0
        return Unread(left.rows, left.size_bytes, time_ms)

    @override
    def close(self) -> None:
        """Close the file; may be called twice."""
        self._stream.close()

    @abstractmethod
    def _time_of(self, tail: bytes) -> int:
        """Return the time of the last row in a file's last bytes; -1 if the time is unknown."""


class FileSource(LaneSource):
    """One file, which may grow and move: its beginning identifies it.

    A file that cannot be read raises ``SourceError``.
    """

    buffer_bytes: ClassVar[int] = 262_144

    def __init__(self, path: Path, format_: str) -> None:
        """Keep the path without opening the file. The format is part of its identity."""
        self.path = path
        self._format = format_
        self.name = f"source {str(path)!r}"

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The format and a digest of the file's beginning; the path is no part of it."""
        head = self._head(_HEAD_BYTES)
        return {"format": self._format, "head_bytes": len(head), "head_digest": text_digest(head)}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Describe the difference to a stored fingerprint; empty if the file only grew."""
        if stored.get("format") != self._format:
            return f"its format is {self._format}, but was {stored.get('format')} before"
        size = int(stored.get("head_bytes", 0))
        head = self._head(size)
        if len(head) < size:
            return f"it has {len(head)} bytes, but had at least {size} before"
        if text_digest(head) != stored.get("head_digest"):
            return f"its first {size} bytes have changed"
        return ""

    @override
    def _reader(self, opening: Opening) -> SourceReader:
        stream = self._open()
        try:
            return self._read(stream, opening)
        except BaseException as error:
            stream.close()
            if isinstance(error, READ_ERRORS):
                raise SourceError(f"source {stream.name!r} cannot be read ({error})") from error
            raise

    def _open(self) -> FileStream:
        return FileStream(self.path, self.buffer_bytes)

    @abstractmethod
    def _read(self, stream: FileStream, opening: Opening) -> SourceReader:
        """Return the reader of an open file."""

    def _head(self, size: int) -> bytes:
        stream = FileStream(self.path)
        try:
            return stream.bytes.read(size)
        except READ_ERRORS as error:
            raise SourceError(
                f"source {stream.name!r} cannot be read ({error}): repair the file"
            ) from error
        finally:
            stream.close()
