"""Files of packed events: the fields that tasks read in columns, and unparsed payloads.

A file is a header and blocks; integers are little-endian. The file's header::

    4s "WEV" and the version 1   12s marker   u32 crc32 of the 16 bytes before

Each file has its own marker, which begins every block. So reading can continue after
damage without taking a part of a payload for a block (as in Avro's object container
files). A block is a batch of records. Its header suffices to skip it (as in Kafka's
record batches, KIP-98)::

    12s marker   u32 count, 1-256   u32 bytes of headers   u32 bytes of payloads
    u32 crc32 of the headers   u32 crc32 of the 28 bytes before   HEADERS   PAYLOADS

Payloads follow one another. Headers are one MessagePack array of columns, and repeated
values appear once (dictionary encoding as in Parquet). A device's name is one object
for all its events of a block::

    [devices, bin, ids, bin, pages, bin, instances, bin,   # values, and a u8 index per event
     kinds,             # bin: a u8 per event, the index in ``events.KINDS``
     event times,       # bin: an i64 per event
     ingest times,      # bin: the same
     contents,          # bin: a JSON array, an object per event
     uids,              # array of text
     payload sizes]     # bin: a u32 per event
"""

import zlib
from collections.abc import Sequence
from itertools import starmap
from struct import Struct, unpack
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple

import msgspec

from walle_stream.errors import SourceFormatError
from walle_stream.events import KINDS, Event
from walle_stream.types import TIME_MAX_MS

MAGIC: Final = b"WEV"
"""First bytes of such a file, which no JSON text has."""

HEADERS_MAX_BYTES: Final = 2**20
"""Longest headers of a block that a reader accepts, unless its records may be longer."""

RECORDS_MAX: Final = 256
"""Largest number of records in a block, because indices in its tables are bytes."""

_VERSION: Final = 1
_FILE_HEAD: Final = Struct("<3sB12sI")
_BLOCK_HEAD: Final = Struct("<12sIIIII")

FILE_HEAD_BYTES: Final = _FILE_HEAD.size
BLOCK_HEAD_BYTES: Final = _BLOCK_HEAD.size
_CRC_BYTES: Final = 4


class BlockHead(NamedTuple):
    """The fields of a block's header."""

    marker: bytes
    records: int
    headers_bytes: int
    payloads_bytes: int
    headers_crc: int


class BlockHeaders(NamedTuple):
    """Headers of a block, decoded."""

    devices: list[str]
    """The distinct devices; not checked."""
    homes: bytes
    """For each event, the index of its device."""
    events: list[Event]
    sizes: tuple[int, ...]
    """For each event, the bytes of its payload."""
    has_valid_times: bool
    """Whether all times are between 0 and ``TIME_MAX_MS``."""


def encode_file_head(marker: bytes) -> bytes:
    """Encode the header of a file.

    The marker is 12 bytes that no payload of the file contains: random bytes, or a digest.
    """
    data = _FILE_HEAD.pack(MAGIC, _VERSION, marker, 0)[:-_CRC_BYTES]
    return data + zlib.crc32(data).to_bytes(_CRC_BYTES, "little")


def decode_file_head(data: bytes) -> bytes:
    """Return the marker of a file's first ``FILE_HEAD_BYTES``.

    Raises:
        SourceFormatError: The bytes are truncated, damaged or of another version.
    """
    if data[len(MAGIC) : len(MAGIC) + 1] not in {b"", bytes([_VERSION])}:
        raise SourceFormatError(
            f"its layout is version {data[len(MAGIC)]}, this version of walle_stream reads "
            f"{_VERSION}: use the one that wrote it"
        )
    body, crc = data[:-_CRC_BYTES], int.from_bytes(data[-_CRC_BYTES:], "little")
    if len(data) != FILE_HEAD_BYTES or zlib.crc32(body) != crc:
        raise SourceFormatError(
            "its header is cut or damaged, so no block can be found: write it again"
        )
    marker: bytes = _FILE_HEAD.unpack(data)[2]
    return marker


def try_decode_block_head(data: bytes, marker: bytes) -> BlockHead | None:
    """Decode a block's header; None if the data is not a valid header.

    The data has ``BLOCK_HEAD_BYTES`` unless the file ends before.
    """
    if len(data) != BLOCK_HEAD_BYTES or not data.startswith(marker):
        return None
    *fields, crc = _BLOCK_HEAD.unpack(data)
    if zlib.crc32(data[:-_CRC_BYTES]) != crc:
        return None
    head = BlockHead(*fields)
    return head if 0 < head.records <= RECORDS_MAX else None


class _Columns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    devices: list[str]
    homes: bytes
    ids: list[str]
    of_ids: bytes
    pages: list[str]
    of_pages: bytes
    instances: list[str]
    of_instances: bytes
    kinds: bytes
    event_times: bytes
    ingest_times: bytes
    contents: bytes
    uids: list[str]
    payload_sizes: bytes

    def events(self, times_ms: Sequence[int], ingest_times_ms: Sequence[int]) -> list[Event]:
        # only calls of C: construction from tuples takes half of a loop's time
        columns = zip(
            map(self.devices.__getitem__, self.homes),
            map(self.ids.__getitem__, self.of_ids),
            map(_kind, self.kinds),
            map(self.pages.__getitem__, self.of_pages),
            map(self.instances.__getitem__, self.of_instances),
            times_ms,
            ingest_times_ms,
            _decode_contents(self.contents),
            self.uids,
            strict=True,
        )
        return list(starmap(Event, columns))


_decode_columns: Final = msgspec.msgpack.Decoder(_Columns).decode
_decode_contents: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_kind: Final = KINDS.__getitem__
_codes: Final = {kind: code for code, kind in enumerate(KINDS)}


def decode_headers(data: bytes, head: BlockHead) -> BlockHeaders:
    """Decode a block's untrusted headers.

    Raises:
        SourceFormatError: The headers are altered, or do not fit each other or the block's header.
    """
    if zlib.crc32(data) != head.headers_crc:
        raise SourceFormatError("the headers were altered: their checksum does not match")
    count = head.records
    try:
        columns = _decode_columns(data)
        times_ms = unpack(f"<{count}q", columns.event_times)
        ingest_times_ms = unpack(f"<{count}q", columns.ingest_times)
        sizes = unpack(f"<{count}I", columns.payload_sizes)
        events = columns.events(times_ms, ingest_times_ms)
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        IndexError,
        ValueError,
        StructError,
    ) as error:
        raise SourceFormatError(f"the headers do not fit: {error}") from error
    if sum(sizes) != head.payloads_bytes:
        raise SourceFormatError(
            f"the payloads have {head.payloads_bytes} bytes, their headers say {sum(sizes)}"
        )
    has_valid_times = all(
        min(times) >= 0 and max(times) <= TIME_MAX_MS for times in (times_ms, ingest_times_ms)
    )
    return BlockHeaders(columns.devices, columns.homes, events, sizes, has_valid_times)


def encode_block(
    marker: bytes, events: Sequence[Event], contents: Sequence[bytes], payloads: Sequence[bytes]
) -> bytes:
    """Encode 1 to ``RECORDS_MAX`` events with their contents, as JSON, and payloads.

    Raises:
        SourceFormatError: A number is too large for its field.
    """
    count = len(events)
    try:
        headers = _encode(
            (
                *_table([event.device_id for event in events]),
                *_table([event.id for event in events]),
                *_table([event.page_id for event in events]),
                *_table([event.page_instance for event in events]),
                bytes(_codes[event.kind] for event in events),
                Struct(f"<{count}q").pack(*(event.event_time_ms for event in events)),
                Struct(f"<{count}q").pack(*(event.ingest_time_ms for event in events)),
                b"[" + b",".join(contents) + b"]",
                [event.uid for event in events],
                Struct(f"<{count}I").pack(*map(len, payloads)),
            )
        )
        head = _BLOCK_HEAD.pack(
            marker, count, len(headers), sum(map(len, payloads)), zlib.crc32(headers), 0
        )[:-_CRC_BYTES]
    except StructError as error:
        raise SourceFormatError(
            f"an event does not fit a block ({error}): times have 64 bits, payloads 4 GiB"
        ) from error
    crc = zlib.crc32(head).to_bytes(_CRC_BYTES, "little")
    return b"".join((head, crc, headers, *payloads))


def _table(values: list[str]) -> tuple[list[str], bytes]:
    indices: dict[str, int] = {}
    codes = bytes(indices.setdefault(value, len(indices)) for value in values)
    return list(indices), codes
