"""A file of events: its identity, and opening it anywhere."""

import gzip
import io
from collections.abc import Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from walle_connectors.events.reader import READ_ERRORS, EventsReader
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walle_connectors.events.model import EventsModel

HEAD_BYTES: Final = 65_536
"""How much of the file's decompressed beginning the fingerprint covers."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BUFFER_BYTES: Final = 262_144


class EventsSource:
    """Events from one file of them."""

    def __init__(self, model: "EventsModel") -> None:
        """Keep the definition; the file is not touched.

        Args:
            model: The source's definition.
        """
        self._path = model.path
        self._max_record_bytes = model.max_record_bytes

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The file's beginning; not where the file is.

        Raises:
            SourceError: The file cannot be read.
        """
        head = self._head(HEAD_BYTES)
        return {"format": "events", "head_bytes": len(head), "head_digest": _digest(head)}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another file; one that grew is the same.

        Args:
            stored: A fingerprint from before.

        Raises:
            SourceChangedError: The beginning differs.
            SourceError: The file cannot be read.
        """
        size = int(stored.get("head_bytes", 0))
        head = self._head(size)
        if stored.get("format") != "events" or _digest(head) != stored.get("head_digest"):
            raise SourceChangedError(
                f"source {str(self._path)!r} is not the one that the data directory was made from: "
                f"its first {size} bytes are others than before. Give the same source, or a new "
                "--data-dir"
            )

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> EventsReader:
        """Open the file at the partitions' offsets.

        Args:
            offsets: The last committed offset of each partition that has one.
            partition_count: Number of partitions of the data directory.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most lines to read in this run; None for no limit.

        Raises:
            SourceError: The file cannot be opened, or an offset is not of it.
        """
        stream, raw, size = self._open()
        try:
            return EventsReader(
                stream=stream,
                raw=raw,
                size_bytes=size,
                name=self._path.name,
                offsets=offsets,
                partition_count=partition_count,
                batch_events=batch_events,
                limit=limit,
                max_record_bytes=self._max_record_bytes,
            )
        except BaseException as error:
            stream.close()
            raw.close()
            if isinstance(error, READ_ERRORS):
                raise self._unreadable(error) from error
            raise

    def _open(self) -> tuple[BinaryIO, BinaryIO, int]:
        try:
            raw = self._path.open("rb", buffering=0)
        except OSError as error:
            raise SourceNotFoundError(
                f"source {str(self._path)!r} cannot be opened ({error.strerror}): correct "
                "spec.source.path"
            ) from error
        is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        size = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        if is_gzip:
            return cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="rb")), raw, size
        return io.BufferedReader(raw, _BUFFER_BYTES), raw, size

    def _head(self, size: int) -> bytes:
        with self._read_errors():
            stream, raw, _ = self._open()
            with raw, stream:
                return stream.read(size)

    @contextmanager
    def _read_errors(self) -> "Iterator[None]":
        try:
            yield
        except READ_ERRORS as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException) -> SourceError:
        return SourceError(f"source {str(self._path)!r} cannot be read ({error}): repair the file")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
