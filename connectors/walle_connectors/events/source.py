"""A file of events: its identity, and opening it anywhere."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from walle_connectors.events.blocks import check_file_head
from walle_connectors.events.lines import EventsReader
from walle_connectors.events.model import EventsModel
from walle_connectors.events.packed import PackedReader
from walle_connectors.file_stream import HEAD_BYTES, READ_ERRORS, FileStream, read_head
from walle_stream.errors import SourceChangedError, SourceError, SourceFormatError
from walle_stream.wire.event_blocks import FILE_HEAD_BYTES, MAGIC

if TYPE_CHECKING:
    import io

_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r")  # never in JSON
_BUFFER_BYTES: Final = 8_192  # chunks are larger, so they are copied once


class EventsSource:
    """Events from one file of them: JSON Lines, or packed."""

    def __init__(self, model: EventsModel) -> None:
        """Keep the definition; the file is not touched."""
        self._path = model.path
        self._max_record_bytes = model.max_record_bytes

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The file's beginning; not where the file is.

        Raises:
            SourceError: The file cannot be read.
            SourceFormatError: The head of a file of packed events is damaged.
        """
        head = read_head(self._path, HEAD_BYTES)
        # before a data directory is made from it
        if head.startswith(MAGIC):
            check_file_head(head, self._path.name)
        elif _CONTROLS.intersection(head[:FILE_HEAD_BYTES]):
            raise SourceFormatError(
                f"{self._path.name} is neither JSON Lines nor packed events, or its first "
                "bytes are damaged: write it again"
            )
        return {"format": "events", "head_bytes": len(head), "head_digest": _digest(head)}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another file; one that grew is the same.

        Raises:
            SourceChangedError: The beginning differs.
            SourceError: The file cannot be read.
        """
        size = int(stored.get("head_bytes", 0))
        head = read_head(self._path, size)
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
    ) -> EventsReader | PackedReader:
        """Open the file; see ``ports.Source.open``.

        Raises:
            SourceError: The file cannot be opened, or an offset is not of it.
            SourceChangedError: The file differs from what was read before.
            SourceFormatError: The head of a file of packed events is damaged.
        """
        stream = FileStream(self._path, _BUFFER_BYTES)
        try:
            make = PackedReader if _is_packed(stream) else EventsReader
            return make(
                stream=stream,
                offsets=offsets,
                partition_count=partition_count,
                batch_events=batch_events,
                limit=limit,
                max_record_bytes=self._max_record_bytes,
            )
        except BaseException as error:
            stream.close()
            if isinstance(error, READ_ERRORS):
                raise SourceError(f"source {stream.name!r} cannot be read ({error})") from error
            raise


def _is_packed(stream: FileStream) -> bool:
    # where reading cannot begin, it will say so
    head = cast("io.BufferedReader", stream.bytes).peek(len(MAGIC))
    return head.startswith(MAGIC)


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
