"""Builder of files of packed events, which takes events one by one and returns whole blocks.

The builder does no I/O: the caller writes the blocks, after ``encode_file_head``.
"""

from typing import Final

import msgspec

from walle_stream.errors import SourceFormatError
from walle_stream.events import KINDS, Event
from walle_stream.wire.event_blocks import HEADERS_MAX_BYTES, RECORDS_MAX, encode_block

BLOCK_BYTES: Final = 65_536
"""Approximate size of a block, unless a single record is larger."""

_HEADER_BYTES: Final = 48  # upper bound for fields that are not text
_TIMES: Final = range(-(1 << 63), 1 << 63)  # the reader refuses times before 1970
_PAYLOAD_MAX_BYTES: Final = (1 << 32) - 1

_encode: Final = msgspec.json.Encoder().encode


class BlockBuilder:
    """Collector of records into blocks, for one thread."""

    def __init__(self, marker: bytes, block_bytes: int = BLOCK_BYTES) -> None:
        """Begin without records; a block has at most ``block_bytes``."""
        self._marker = marker
        self._block_bytes = block_bytes
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self._contents: list[bytes] = []
        self._payloads: list[bytes] = []
        self._size_bytes = 0

    def add(self, event: Event, payload: bytes) -> bytes:
        """Take a record; return a block if it is full now, else no bytes.

        Raises:
            SourceFormatError: The record does not fit into a block, and was not taken.
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
        """Return the records since the last block as a block, or no bytes without records."""
        if not self._events:
            return b""
        block = encode_block(self._marker, self._events, self._contents, self._payloads)
        self._begin()
        return block


def _checked(event: Event, payload: bytes) -> tuple[bytes, int]:
    # returns the contents as JSON, and an upper bound of the event's bytes in the headers
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
            f"an event does not fit a block: its fields have {size} bytes of at most "
            f"{HEADERS_MAX_BYTES}, its payload {len(payload)} of at most {_PAYLOAD_MAX_BYTES}"
        )
    return contents, size
