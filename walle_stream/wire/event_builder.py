"""Builds files of packed events: takes events one by one and gives whole blocks.

Pure: the caller writes what comes out, ``encode_file_head`` first.
"""

from typing import Final

import msgspec

from walle_stream.errors import SourceFormatError
from walle_stream.events import KINDS, Event
from walle_stream.wire.event_blocks import HEADERS_MAX_BYTES, RECORDS_MAX, encode_block

BLOCK_BYTES: Final = 65_536
"""About how large a block gets, unless a single record is larger."""

_HEADER_BYTES: Final = 48  # of what is not text, at most
_TIMES: Final = range(-(1 << 63), 1 << 63)  # the reader refuses those before 1970
_PAYLOAD_MAX_BYTES: Final = (1 << 32) - 1

_encode: Final = msgspec.json.Encoder().encode


class BlockBuilder:
    """Collects records into blocks. One thread."""

    def __init__(self, marker: bytes, block_bytes: int = BLOCK_BYTES) -> None:
        """Begin; a block gets ``block_bytes`` at most."""
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

        Raises:
            SourceFormatError: It does not fit a block; it was not taken.
        """
        contents, header_bytes = _checked(event, payload)
        size = header_bytes + len(payload)
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
        """Return what was taken since the last block as one, or nothing."""
        if not self._events:
            return b""
        block = encode_block(self._marker, self._events, self._contents, self._payloads)
        self._begin()
        return block


def _checked(event: Event, payload: bytes) -> tuple[bytes, int]:
    # the contents as JSON, and how much of a block's headers the event takes at most
    texts = (event.device_id, event.id, event.page_id, event.page_instance, event.uid)
    try:
        contents = _encode(event.contents)
        size = _HEADER_BYTES + len(contents) + sum(len(text.encode()) for text in texts)
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError) as error:
        raise SourceFormatError(f"an event does not fit a block: {error}") from error
    if event.kind not in KINDS:
        raise SourceFormatError(f"an event does not fit a block: no kind is {event.kind!r}")
    if event.event_time_ms not in _TIMES or event.ingest_time_ms not in _TIMES:
        raise SourceFormatError("an event does not fit a block: a time has more than 64 bits")
    if size > HEADERS_MAX_BYTES or len(payload) > _PAYLOAD_MAX_BYTES:
        raise SourceFormatError(
            f"an event does not fit a block: what tasks read has {size} bytes of at most "
            f"{HEADERS_MAX_BYTES}, its payload {len(payload)} of at most {_PAYLOAD_MAX_BYTES}"
        )
    return contents, size
