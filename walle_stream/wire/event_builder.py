"""Builds files of packed events: takes events one by one and gives whole blocks.

Pure: the caller writes what comes out, ``encode_file_head`` first.
"""

from typing import Final

import msgspec

from walle_stream.events import Event
from walle_stream.wire.event_blocks import RECORDS_MAX, encode_block

BLOCK_BYTES: Final = 65_536
"""About how large a block gets, unless a single record is larger."""

_HEADER_BYTES: Final = 32  # of what is not text, about

_encode: Final = msgspec.json.Encoder().encode


class BlockBuilder:
    """Collects records into blocks. One thread."""

    def __init__(self, marker: bytes, block_bytes: int = BLOCK_BYTES) -> None:
        """Begin.

        Args:
            marker: The file's.
            block_bytes: How large a block should get at most.
        """
        self._marker = marker
        self._block_bytes = block_bytes
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self._contents: list[bytes] = []
        self._payloads: list[bytes] = []
        self._size_bytes = 0

    def add(self, event: Event, payload: bytes) -> bytes:
        """Take a record; return the block that is full now, or nothing.

        Args:
            event: What tasks read.
            payload: What nobody parses.

        Raises:
            SourceFormatError: An event before does not fit a block.
        """
        contents = _encode(event.contents)
        size = _HEADER_BYTES + len(contents) + len(payload) + len(event.uid)
        block = b""
        if self._events and (
            len(self._events) == RECORDS_MAX or self._size_bytes + size > self._block_bytes
        ):
            block = self.flush()
        self._events.append(event)
        self._contents.append(contents)
        self._payloads.append(payload)
        self._size_bytes += size
        return block

    def flush(self) -> bytes:
        """Return what was taken since the last block as one, or nothing.

        Raises:
            SourceFormatError: An event does not fit a block.
        """
        if not self._events:
            return b""
        block = encode_block(self._marker, self._events, self._contents, self._payloads)
        self._begin()
        return block
