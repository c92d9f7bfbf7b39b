"""A file of events: its identity, and opening it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, override

import msgspec

from walle_connectors.events.blocks import check_file_head
from walle_connectors.events.lines import EventsReader
from walle_connectors.events.model import EventsModel
from walle_connectors.events.offsets import LinePosition, PackedPosition
from walle_connectors.events.packed import PackedReader
from walle_connectors.file_stream import FileSource, FileStream
from walle_stream.errors import SourceFormatError
from walle_stream.reading import Opening
from walle_stream.wire.event_blocks import FILE_HEAD_BYTES, MAGIC

_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r")  # never in JSON


class EventsSource(FileSource):
    """A source of one file of events: JSON Lines, or packed."""

    buffer_bytes = 8_192  # smaller than chunks, so these are copied only once

    def __init__(self, model: EventsModel) -> None:
        """Keep the definition; the file is not opened."""
        super().__init__(Path(model.path), "events")
        self._max_bytes = model.max_record_bytes

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The file's first bytes, without its path.

        Raises:
            SourceError: The file cannot be read.
            SourceFormatError: It has neither format, or a damaged head.
        """
        head = self._head(FILE_HEAD_BYTES)
        # fail before a data directory is made
        if head.startswith(MAGIC):
            check_file_head(head, self.path.name)
        elif _CONTROLS.intersection(head):
            raise SourceFormatError(
                f"{self.path.name} is neither JSON Lines nor packed events, or its first "
                "bytes are damaged: write it again"
            )
        return super().fingerprint

    @override
    def _read(self, stream: FileStream, opening: Opening) -> EventsReader | PackedReader:
        # the reader itself reports an unreadable file
        if not stream.peek(len(MAGIC)).startswith(MAGIC):
            return EventsReader(stream, opening, LinePosition(), self._max_bytes)
        # a file that was empty before may have either format now
        offsets = {n: each for n, each in opening.offsets.items() if not _is_of_nothing(each)}
        opening = opening._replace(offsets=offsets)
        return PackedReader(stream, opening, PackedPosition(index=0), self._max_bytes)


def _is_of_nothing(offset: bytes) -> bool:
    try:
        position = msgspec.json.decode(offset, type=LinePosition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return position.is_end and not position.at
