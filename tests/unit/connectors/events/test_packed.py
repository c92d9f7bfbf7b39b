import gzip
import json
import struct
import zlib

import pytest

from tests.unit.connectors.events.reading import read
from walle_connectors.events import CONNECTOR
from walle_stream.errors import SourceChangedError, SourceError, SourceFormatError
from walle_stream.events import Event
from walle_stream.reading import reader as reader_module
from walle_stream.types import partition_of
from walle_stream.wire.event_blocks import encode_file_head, try_decode_block_head
from walle_stream.wire.event_builder import BLOCK_BYTES, BlockBuilder

MARKER = b"twelve bytes"
PAYLOAD = b"never parsed \xff\n"


def event(number, **fields):
    place = {"page_id": "p", "page_instance": "", "uid": str(number)}
    kind = {"id": "click", "kind": "click", "event_time_ms": 5, "ingest_time_ms": 6}
    return Event(**{"device_id": f"d{number % 5}", **place, **kind, **fields})


def pack(events, payload=PAYLOAD, per_block=4):
    """Return a file's head and its blocks."""
    parts, builder = [encode_file_head(MARKER)], BlockBuilder(MARKER)
    for number, each in enumerate(events, 1):
        builder.add(each, payload)
        if number % per_block == 0:
            parts.append(builder.flush())
    return [part for part in [*parts, builder.flush()] if part]


@pytest.fixture
def source(tmp_path):
    def make(parts, **keys):
        path = tmp_path / "e.wev"
        if parts is not None:
            path.write_bytes(b"".join(parts))
        return CONNECTOR.open(CONNECTOR.model.model_validate({"path": path, **keys}))

    return make


def uids(batches):
    return [int(each.uid) for batch in batches for each in batch.events]


def letters(batches):
    return [letter for batch in batches for letter in batch.dead_letters]


EVENTS = [event(number) for number in range(10)]


@pytest.mark.parametrize("keeps_raw", [False, True])
@pytest.mark.parametrize("batch_events", [1, 3, 4, 100])
@pytest.mark.parametrize("shape", [bytes, gzip.compress])
def test_a_file_gives_its_events_and_all_its_bytes(source, shape, batch_events, keeps_raw):
    parts = pack(EVENTS)
    batches = read(source([shape(b"".join(parts))]), batch_events=batch_events, keeps_raw=keeps_raw)
    assert [each for batch in batches for each in batch.events] == EVENTS
    assert max(len(batch.events) for batch in batches) <= batch_events
    assert sum(batch.counts.raw_bytes for batch in batches) == sum(map(len, parts[1:]))
    assert [batch.is_end for batch in batches] == [False] * (len(batches) - 1) + [True]
    raw = b"".join(batch.raw or b"" for batch in batches)
    assert len(raw) == (sum(map(len, parts[1:])) if keeps_raw else 0)
    assert raw.count(PAYLOAD) == (10 if keeps_raw else 0)


def test_an_empty_file_ends(source):
    (batch,) = read(source(pack([])))
    assert (len(batch.events), batch.is_end) == (0, True)
    assert read(source(None), {0: batch.offset}) == []


def test_devices_come_in_their_partitions(source):
    for batch in read(source(pack(EVENTS)), partitions=3):
        assert {partition_of(each.device_id, 3) for each in batch.events} <= {batch.partition}


def position(batches):
    return json.loads(batches[-1].offset)


def test_an_offset_is_a_block_and_a_place_in_it(source):
    parts = pack(EVENTS)
    first = read(source(parts), limit=6)
    assert position(first)["at"] == len(parts[0]) + len(parts[1])
    assert (position(first)["index"], position(first)["line"]) == (2, 6)
    assert uids(first) + uids(read(source(None), {0: first[-1].offset})) == list(range(10))


@pytest.mark.parametrize(
    ("bad", "route", "words", "bound"),
    [
        ({"device_id": ""}, "invalid", "the device id is empty", 1_000),
        ({"device_id": "a\0b"}, "invalid", "NUL", 1_000),
        ({"event_time_ms": -1}, "invalid", "outside 0", 1_000),
        ({"ingest_time_ms": 2**62}, "invalid", "outside 0", 1_000),
        ({"ingest_time_ms": -1, "device_id": "new"}, "invalid", "outside 0", 1_000),
    ],
)
@pytest.mark.parametrize("partitions", [1, 3])
def test_one_wrong_event_is_refused_alone(source, bad, route, words, bound, partitions):
    events = [*EVENTS[:5], event(5, **bad), *EVENTS[6:]]
    parts = pack(events)
    batches = read(source(parts, maxRecordBytes=bound), partitions=partitions)
    (letter,) = letters(batches)
    assert letter.route == route
    assert letter.origin == f"e.wev:byte {len(parts[0]) + len(parts[1])} event 1"
    assert words in letter.reason
    assert sorted(uids(batches)) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert sum(batch.counts.source_rows for batch in batches) == 10


@pytest.mark.parametrize("keeps_raw", [False, True])
def test_a_payload_that_is_too_long_refuses_its_event(source, keeps_raw):
    builder = BlockBuilder(MARKER)
    for each in EVENTS[:3]:
        builder.add(each, b"x" * (2_000 if each.uid == "1" else 900))
    made = source([encode_file_head(MARKER), builder.flush()], maxRecordBytes=1_000)
    batches = read(made, keeps_raw=keeps_raw)
    (letter,) = letters(batches)
    assert (letter.route, letter.reason) == (
        "oversized",
        "a payload of 2000 bytes, at most 1000 are allowed",
    )
    assert uids(batches) == [0, 2]
    assert len(batches[0].raw or b"") == (batches[0].counts.raw_bytes - 2_000) * keeps_raw


def flipped(part, place):
    return part[:place] + bytes([part[place] ^ 1]) + part[place + 1 :]


@pytest.mark.parametrize(
    ("place", "words"), [(0, "damaged; the next one"), (14, "damaged"), (40, "checksum")]
)
@pytest.mark.parametrize("shape", [bytes, gzip.compress])
def test_a_damaged_block_is_one_dead_letter(source, place, words, shape):
    parts = pack(EVENTS)
    parts[2] = flipped(parts[2], place)
    made = source([shape(b"".join(parts))])
    (letter,) = letters(read(made))
    assert (letter.route, letter.origin) == (
        "decode",
        f"e.wev:byte {len(parts[0]) + len(parts[1])}",
    )
    assert words in letter.reason
    for limit in range(1, 8):
        first = read(made, limit=limit, partitions=3)
        offsets = {batch.partition: batch.offset for batch in first}
        rest = read(made, offsets, partitions=3)
        assert sorted(uids([*first, *rest])) == [0, 1, 2, 3, 8, 9]
        assert len(letters([*first, *rest])) == 1
        assert sum(batch.counts.source_rows for batch in first) == limit


@pytest.mark.parametrize("shape", [bytes, gzip.compress])
@pytest.mark.parametrize("lost", [1, 20, 60, 200])
def test_a_block_that_lost_bytes_does_not_take_the_next_with_it(source, lost, shape):
    parts = pack(EVENTS)
    begin = len(parts[0]) + len(parts[1])
    parts[2] = parts[2][:-lost]
    made = source([shape(b"".join(parts))])
    batches = read(made)
    (letter,) = letters(batches)
    assert letter.origin == f"e.wev:byte {begin}"
    assert f"lost bytes: the next one is at byte {begin + len(parts[2])}" in letter.reason
    assert uids(batches) == [0, 1, 2, 3, 8, 9]
    kept = read(made, keeps_raw=True)
    assert uids(kept) == uids(batches)
    first = read(made, limit=5)
    assert uids(first) + uids(read(made, {0: first[-1].offset})) == uids(batches)


@pytest.mark.parametrize("size", [10, 2**31])
def test_a_length_that_is_wrong_takes_no_other_block_with_it(source, size):
    # a head that somebody made: its checksum is right
    parts = pack(EVENTS)
    count, headers, payloads, crc = struct.unpack("<IIII", parts[2][12:28])
    head = MARKER + struct.pack("<IIII", count, headers, payloads + size, crc)
    parts[2] = head + struct.pack("<I", zlib.crc32(head)) + parts[2][32:]
    batches = read(source(parts))
    assert len(letters(batches)) == 1
    assert uids(batches) == [0, 1, 2, 3, 8, 9]


def test_a_flipped_payload_is_nobodys_business(source):
    parts = pack(EVENTS)
    parts[2] = flipped(parts[2], len(parts[2]) - 3)
    assert uids(read(source(parts))) == list(range(10))


def test_a_block_inside_a_payload_is_no_block(source):
    # behind damage a marker is looked for: somebody else's file in a payload has another one
    forged = b"".join(pack([event(99)])).replace(MARKER, b"other marker")
    parts = pack(EVENTS, forged)
    parts[1] = flipped(parts[1], 13)
    batches = read(source(parts))
    assert uids(batches) == list(range(4, 10))
    assert len(letters(batches)) == 1


def test_headers_that_are_too_long_are_passed_over(source):
    parts = pack(EVENTS)
    size = 2**20 + 1
    start = MARKER + struct.pack("<IIII", 1, size, 3, 0)
    huge = start + struct.pack("<I", zlib.crc32(start)) + bytes(size) + b"abc"
    assert try_decode_block_head(huge[:32], MARKER) is not None
    batches = read(source([*parts[:2], huge, *parts[2:]]))
    (letter,) = letters(batches)
    assert letter.route == "oversized"
    assert uids(batches) == list(range(10))


def test_a_file_cut_anywhere_keeps_what_is_whole(source):
    parts = pack(EVENTS)
    whole, last = b"".join(parts[:-1]), parts[-1]
    for size in range(1, len(last)):
        batches = read(source([whole, last[:size]]))
        (letter,) = letters(batches)
        assert letter.origin == f"e.wev:byte {len(whole)}"
        assert "the file" in letter.reason
        assert uids(batches) == list(range(8))
        assert batches[-1].is_end
        assert read(source(None), {0: batches[-1].offset}) == []
        # like a last line: it was counted, so it must not change
        with pytest.raises(SourceChangedError, match=f"differs at byte {len(whole)}.*incomplete"):
            read(source(parts), {0: batches[-1].offset})


def test_a_file_that_grows_is_read_on(source):
    parts = pack(EVENTS)
    batches = read(source(parts[:2]))
    more = read(source(parts), {0: batches[-1].offset})
    assert uids(batches) == [0, 1, 2, 3]
    assert uids(more) == [4, 5, 6, 7, 8, 9]
    assert more[-1].is_end


def test_a_file_that_changed_is_refused(source):
    parts, other = pack(EVENTS), pack([event(number, page_id="q") for number in range(10)])
    for limit in (4, 6, None):
        batches = read(source(parts), limit=limit)
        for changed in (other, parts[:1], [*parts[:1], *other[1:]], [*parts[:-1], parts[-1][:-1]]):
            if changed[-1] == parts[-1][:-1] and limit:
                continue  # it differs behind what was read
            with pytest.raises(SourceChangedError, match="differs at byte"):
                read(source(changed), {0: batches[-1].offset})
    # half a block was taken, and the rest cannot be
    batches = read(source(parts), limit=6)
    with pytest.raises(SourceChangedError, match="differs at byte"):
        read(source([*parts[:2], flipped(parts[2], 50), *parts[3:]]), {0: batches[-1].offset})


def test_damage_that_became_other_damage_is_refused(source):
    parts = pack(EVENTS)
    parts[2] = flipped(parts[2], 0)
    batches = read(source(parts), limit=5)
    assert position(batches)["line"] == 5
    parts[2] = flipped(parts[2], 60)
    with pytest.raises(SourceChangedError, match="differs at byte"):
        read(source(parts), {0: batches[-1].offset})


def test_a_partition_without_devices_does_not_hold_the_others_back(source, monkeypatch):
    monkeypatch.setattr(reader_module, "FLUSH_BYTES", 300)
    made = source(pack([event(0)] * 50))
    reader = made.open({}, 4, 100)
    first = {batch.partition: batch.offset for batch in reader.read()}
    assert len(first) == 4
    assert not reader.is_done
    reader.close()
    [line] = {json.loads(offset)["line"] for offset in first.values()}
    assert 0 < line < 50
    assert len(uids(read(made, first, partitions=4))) == 50 - line


def test_a_head_that_is_damaged_or_newer_is_said(source):
    parts = pack(EVENTS)
    with pytest.raises(SourceFormatError, match=r"e\.wev.*damaged.*write it again"):
        read(source([flipped(parts[0], 9), *parts[1:]]))
    with pytest.raises(SourceFormatError, match=r"version 2.*reads 1"):
        read(source([b"WEV\x02", b"".join(parts)[4:]]))
    with pytest.raises(SourceFormatError, match=r"version 2.*reads 1"):
        _ = source(None).fingerprint
    with pytest.raises(SourceFormatError, match="cut"):
        read(source([b"WEV"]))


def test_files_that_cannot_be_read(source):
    data = gzip.compress(b"".join(pack(EVENTS, payload=bytes(range(256)) * 50)))
    made = source([data[: len(data) // 2]])
    with pytest.raises(SourceError, match="cannot be read"):
        read(made)


def test_offsets_of_both_formats_are_told_apart(source, tmp_path):
    batches = read(source(pack(EVENTS)))
    lines = tmp_path / "e.jsonl"
    lines.write_text('{"device_id": ""}\n')
    made = CONNECTOR.open(CONNECTOR.model.model_validate({"path": lines}))
    with pytest.raises(SourceError, match="the offset of partition 0"):
        read(made, {0: batches[-1].offset})
    with pytest.raises(SourceError, match="the offset of partition 0"):
        read(source(None), {0: read(made)[-1].offset})


@pytest.mark.parametrize("place", range(3))
def test_a_damaged_magic_is_no_file_of_lines(source, place):
    made = source([flipped(b"".join(pack(EVENTS)), place)])
    with pytest.raises(SourceFormatError, match="neither JSON Lines nor packed"):
        _ = made.fingerprint


def test_an_empty_file_may_become_one_of_either_format(source):
    (batch,) = read(source([b""]))
    assert len(uids(read(source(pack(EVENTS)), {0: batch.offset}))) == len(EVENTS)


def test_long_names_make_smaller_blocks(source):
    events = [event(n, page_id=f"{n}" + "p" * 5_000) for n in range(256)]
    builder = BlockBuilder(MARKER)
    blocks = [*(builder.add(each, PAYLOAD) for each in events), builder.flush()]
    assert max(map(len, blocks)) <= BLOCK_BYTES
    found = uids(read(source([encode_file_head(MARKER), *blocks])))
    assert found == list(range(256))


@pytest.mark.parametrize(
    "bad",
    [
        {"event_time_ms": 1 << 63},
        {"ingest_time_ms": -(1 << 64)},
        {"page_id": "\ud800"},
        {"kind": "unknown"},
        {"page_id": "p" * (1 << 20)},
        {"contents": {"a": object()}},
    ],
)
def test_an_event_that_fits_no_block_is_refused_and_the_others_are_not_lost(bad):
    builder = BlockBuilder(b"m" * 16)
    builder.add(event(0), b"")
    with pytest.raises(SourceFormatError, match="does not fit"):
        builder.add(event(1, **bad), b"")
    builder.add(event(2), b"")
    assert builder.flush()
