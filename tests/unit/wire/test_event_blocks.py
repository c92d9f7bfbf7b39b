import json
import struct
import zlib

import msgspec
import pytest

from walle_stream.errors import SourceFormatError
from walle_stream.events import KINDS, Event
from walle_stream.wire.event_blocks import (
    BLOCK_HEAD_BYTES,
    FILE_HEAD_BYTES,
    RECORDS_MAX,
    decode_file_head,
    decode_headers,
    encode_block,
    encode_file_head,
    try_decode_block_head,
)
from walle_stream.wire.event_builder import BlockBuilder

MARKER = b"twelve bytes"


def event(number=0, **fields):
    return Event(
        **{
            "device_id": f"d{number % 3}",
            "id": "tap",
            "kind": KINDS[number % 5],
            "page_id": "p",
            "page_instance": str(number),
            "event_time_ms": 1_000 + number,
            "ingest_time_ms": 2_000 + number,
            "contents": {"item": f"ü{number}", "n": [number, 1.5, None, True]},
            "uid": f"u{number}",
            **fields,
        }
    )


def block_of(events, payloads=None):
    contents = [json.dumps(each.contents).encode() for each in events]
    return encode_block(
        MARKER, events, contents, payloads or [b"x" * n for n in range(len(events))]
    )


def decoded(data):
    head = try_decode_block_head(data[:BLOCK_HEAD_BYTES], MARKER)
    assert head is not None
    return decode_headers(data[BLOCK_HEAD_BYTES : BLOCK_HEAD_BYTES + head.headers_bytes], head)


def altered(data, change):
    """Return a block whose columns were changed, with checksums that are right again."""
    head = try_decode_block_head(data[:BLOCK_HEAD_BYTES], MARKER)
    columns = msgspec.msgpack.decode(data[BLOCK_HEAD_BYTES:][: head.headers_bytes])
    change(columns)
    headers = msgspec.msgpack.encode(columns)
    fields = (head.records, len(headers), head.payloads_bytes, zlib.crc32(headers))
    start = MARKER + struct.pack("<IIII", *fields)
    return start + struct.pack("<I", zlib.crc32(start)) + headers


def test_a_block_is_as_the_docs_say():
    events = [event(number) for number in range(4)]
    data = block_of(events, [b"ab", b"", b"\xff", b"last"])
    count, header_bytes, payload_bytes, crc, head_crc = struct.unpack("<IIIII", data[12:32])
    assert data[:12] == MARKER
    assert (count, payload_bytes) == (4, 7)
    headers = data[32 : 32 + header_bytes]
    assert zlib.crc32(headers) == crc
    assert zlib.crc32(data[:28]) == head_crc
    assert data[32 + header_bytes :] == b"ab\xfflast"
    columns = msgspec.msgpack.decode(headers)
    assert columns[0:2] == [["d0", "d1", "d2"], bytes([0, 1, 2, 0])]
    assert columns[2:4] == [["tap"], bytes(4)]
    assert columns[6] == ["0", "1", "2", "3"]
    assert columns[8] == bytes([0, 1, 2, 3])
    assert struct.unpack("<4q", columns[9]) == (1_000, 1_001, 1_002, 1_003)
    assert json.loads(columns[11]) == [each.contents for each in events]
    assert struct.unpack("<4I", columns[13]) == (2, 0, 1, 4)


def test_a_block_gives_its_events_and_each_device_once():
    events = [event(number) for number in range(RECORDS_MAX)]
    headers = decoded(block_of(events))
    assert headers.events == events
    assert {type(each) for each in headers.events} == {Event}
    assert headers.sizes == tuple(range(RECORDS_MAX))
    assert headers.has_valid_times
    assert len({id(each.device_id) for each in headers.events}) == 3
    assert len({id(each.contents) for each in headers.events}) == RECORDS_MAX


def set_column(place, value):
    def change(columns):
        columns[place] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_column(1, b"\x00\x07"), "index out of range"),
        (set_column(3, b"\x00"), "shorter"),
        (set_column(5, bytes(3)), "longer"),
        (set_column(0, ["a", 7]), "Expected `str`"),
        (set_column(8, b"\x05\x00"), "index out of range"),
        (set_column(9, bytes(8)), "16 bytes"),
        (set_column(11, b"[{}"), "truncated"),
        (set_column(11, b"[{}, 1]"), "Expected `object`"),
        (set_column(11, b"[{}]"), "shorter"),
        (set_column(11, b"[" * 100_000), "do not fit"),
        (set_column(12, []), "shorter"),
        (set_column(13, bytes(8)), "their headers say 0"),
        (list.pop, "length 14"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, words):
    with pytest.raises(SourceFormatError, match=words):
        decoded(altered(block_of([event(), event(1)]), change))


def test_more_columns_than_are_known_are_refused():
    with pytest.raises(SourceFormatError):
        decoded(altered(block_of([event()]), lambda columns: columns.append(1)))


@pytest.mark.parametrize("place", range(BLOCK_HEAD_BYTES))
def test_an_altered_head_is_none(place):
    data = bytearray(block_of([event()])[:BLOCK_HEAD_BYTES])
    data[place] ^= 1
    assert try_decode_block_head(bytes(data), MARKER) is None


def test_a_head_without_records_or_with_too_many_is_none():
    for count in (0, RECORDS_MAX + 1):
        start = MARKER + struct.pack("<IIII", count, 0, 0, 0)
        assert try_decode_block_head(start + struct.pack("<I", zlib.crc32(start)), MARKER) is None
    assert try_decode_block_head(b"", MARKER) is None


def test_altered_headers_are_refused():
    data = bytearray(block_of([event()]))
    data[BLOCK_HEAD_BYTES + 3] ^= 1
    with pytest.raises(SourceFormatError, match="checksum"):
        decoded(bytes(data))


def test_a_file_head_gives_its_marker_and_nothing_else_does():
    head = encode_file_head(MARKER)
    assert len(head) == FILE_HEAD_BYTES
    assert head[:4] == b"WEV\x01"
    assert decode_file_head(head) == MARKER
    for place in range(4, len(head)):
        with pytest.raises(SourceFormatError, match="damaged"):
            decode_file_head(head[:place] + bytes([head[place] ^ 1]) + head[place + 1 :])
    for size in range(3, len(head)):
        with pytest.raises(SourceFormatError, match=r"cut"):
            decode_file_head(head[:size])
    with pytest.raises(SourceFormatError, match=r"version 2.*reads 1"):
        decode_file_head(b"WEV\x02" + head[4:])


@pytest.mark.parametrize(
    ("fields", "payload"), [({"event_time_ms": 2**63}, b""), ({"ingest_time_ms": 2**63}, b"")]
)
def test_what_does_not_fit_a_block_is_said(fields, payload):
    with pytest.raises(SourceFormatError, match="64 bits"):
        block_of([event(**fields)], [payload])


def test_a_builder_cuts_by_bytes_and_by_count():
    by_bytes = BlockBuilder(MARKER, 1_000)
    blocks = [by_bytes.add(event(number), b"x" * 400) for number in range(5)]
    blocks.append(by_bytes.flush())
    assert [bool(block) for block in blocks] == [False, False, True, False, True, True]
    assert by_bytes.flush() == b""
    by_count = BlockBuilder(MARKER, 10**9)
    blocks = [by_count.add(event(number), b"") for number in range(RECORDS_MAX + 1)]
    assert [number for number, block in enumerate(blocks) if block] == [RECORDS_MAX]
    assert len(decoded(blocks[-1]).events) == RECORDS_MAX
    large = BlockBuilder(MARKER, 10)
    assert large.add(event(), b"x" * 100) == b""
    assert len(decoded(large.add(event(1), b"")).events) == 1
