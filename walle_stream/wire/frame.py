"""The body of an uplink frame: the features of one commit of one partition.

Layout version 1, integers little-endian, behind the header of ``wire.payload``::

    payload:  u16 count of names { u16 length, UTF-8 }      tasks and versions, interned
              u32 count of records {
                  u16 length of the device id   (0xFFFF: the same device as before)
                  device id, UTF-8
                  u16 task  u16 version         indexes of names
                  u64 sequence number
                  u32 length of feature  u16 length of encoding
                  feature, encoding }

Features are JSON bytes made in the guest; nothing here looks inside them.
"""

import struct
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.payload import pack_payload, unpack_payload

BODY_VERSION: Final = 1
"""Version of the body's layout."""

FRAME_BYTES: Final = 16 * 1024 * 1024
"""Features of a commit beyond this go into another frame."""

_COUNT: Final = Struct("<I")
_SHORT: Final = Struct("<H")
_RECORD: Final = Struct("<HHQIH")
_SAME_DEVICE: Final = 0xFFFF


class FeatureRecord(msgspec.Struct, gc=False):
    """One feature of one device, as it travels."""

    device_id: str
    task: str
    task_version: str
    sequence_number: int
    """Of the device, contiguous from 1 per incarnation."""
    feature: bytes
    """JSON object."""
    encoding: bytes
    """Fixed-size encoding beside the feature; may be empty."""


def split_records(records: Sequence[FeatureRecord]) -> Iterator[Sequence[FeatureRecord]]:
    """Cut the features of a commit into parts that fit into a frame each.

    Args:
        records: As for ``encode_body``.

    Yields:
        Usually one part: all of them.
    """
    first = size_bytes = 0
    for place, record in enumerate(records):
        size_bytes += len(record.feature) + len(record.encoding)
        if size_bytes > FRAME_BYTES and place > first:
            yield records[first:place]
            first, size_bytes = place, len(record.feature) + len(record.encoding)
    if first < len(records):
        yield records[first:] if first else records


def encode_body(records: Sequence[FeatureRecord], compression: str) -> bytes:
    """Encode the features of a commit.

    Args:
        records: Grouped by device, ascending in sequence number.
        compression: ``zstd``, ``zlib`` or ``none``.

    Raises:
        EnvelopeError: A field is longer than the layout allows, or the
            compression is unknown.
    """
    names: dict[str, int] = {}
    parts: list[bytes] = []
    append, pack = parts.append, _RECORD.pack
    device_id = None
    try:
        for record in records:
            if record.device_id == device_id:
                append(b"\xff\xff")
            else:
                device_id = record.device_id
                encoded = device_id.encode()
                append(_SHORT.pack(len(encoded)))
                append(encoded)
            append(
                pack(
                    names.setdefault(record.task, len(names)),
                    names.setdefault(record.task_version, len(names)),
                    record.sequence_number,
                    len(record.feature),
                    len(record.encoding),
                )
            )
            append(record.feature)
            append(record.encoding)
        head = [_SHORT.pack(len(names))]
        for name in names:
            encoded = name.encode()
            head += (_SHORT.pack(len(encoded)), encoded)
    except struct.error as error:
        raise EnvelopeError(f"a feature does not fit into a frame: {error}") from error
    payload = b"".join([*head, _COUNT.pack(len(records)), *parts])
    return pack_payload(BODY_VERSION, payload, compression)


def decode_body(body: bytes) -> list[FeatureRecord]:
    """Decode a body; the inverse of ``encode_body``.

    Args:
        body: Bytes from the tunnel, not trusted.

    Raises:
        EnvelopeError: They are cut, altered or of another version.
    """
    payload = unpack_payload(BODY_VERSION, body)
    try:
        return _records(payload)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise EnvelopeError(f"a frame's payload is malformed: {error}") from error


def _records(payload: bytes) -> list[FeatureRecord]:
    names = []
    position = 2
    for _ in range(_SHORT.unpack_from(payload)[0]):
        end = position + 2 + _SHORT.unpack_from(payload, position)[0]
        names.append(payload[position + 2 : end].decode())
        position = end
    (count,) = _COUNT.unpack_from(payload, position)
    position += 4
    records: list[FeatureRecord] = []
    device_id = ""
    unpack, size = _RECORD.unpack_from, _RECORD.size
    for _ in range(count):
        (length,) = _SHORT.unpack_from(payload, position)
        position += 2
        if length != _SAME_DEVICE:
            device_id = payload[position : position + length].decode()
            position += length
        task, version, number, feature_bytes, encoding_bytes = unpack(payload, position)
        start = position + size
        middle = start + feature_bytes
        position = middle + encoding_bytes
        records.append(
            FeatureRecord(
                device_id,
                names[task],
                names[version],
                number,
                payload[start:middle],
                payload[middle:position],
            )
        )
        if position > len(payload):
            raise IndexError("a record reaches beyond the end")
    if position != len(payload):
        raise IndexError("bytes are left behind the last record")
    return records
