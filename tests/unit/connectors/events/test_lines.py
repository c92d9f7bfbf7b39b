import json

import pytest

from tests.unit.connectors.events.reading import read
from walle_connectors.events import CONNECTOR
from walle_connectors.events import lines as lines_module
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError
from walle_stream.reading import reader as reader_module

EVENT = {
    "device_id": "d",
    "id": "click",
    "kind": "click",
    "page_id": "p",
    "page_instance": "",
    "event_time_ms": 5,
    "ingest_time_ms": 6,
}


def line(**fields):
    return json.dumps({**EVENT, **fields}).encode()


@pytest.fixture
def source(tmp_path):
    def make(data, **keys):
        path = tmp_path / "e.jsonl"
        if data is not None:
            path.write_bytes(data)
        return CONNECTOR.open(CONNECTOR.model.model_validate({"path": path, **keys}))

    return make


def test_what_stands_beside_an_event_is_skipped(source):
    (batch,) = read(source(line(payload={"a": [1, {"b": 2}]}, contents={"item": "x"}) + b"\n"))
    (event,) = batch.events
    assert (event.device_id, event.contents, event.uid) == ("d", {"item": "x"}, "")
    assert batch.is_end
    assert batch.counts.source_rows == 1


@pytest.mark.parametrize(
    ("bad", "route", "words"),
    [
        (b"{", "decode", "is no event"),
        (b"\xff", "decode", "is no event"),
        (b"[]", "decode", "is no event"),
        (line()[:-1] + b', "payload": ' + b"[" * 100_000 + b"}", "decode", "is no event"),
        (line(kind="jump"), "decode", "jump"),
        (line(device_id=""), "invalid", "the device id is empty"),
        (line(device_id="a\0b"), "invalid", "NUL"),
        (line(device_id=7), "decode", "Expected `str`"),
        (line(event_time_ms=-1), "invalid", "outside 0"),
        (line(event_time_ms=2**53), "invalid", "outside 0"),
        (line(ingest_time_ms=2**62), "invalid", "outside 0"),
        (line(ingest_time_ms=2**70), "invalid", "outside 0"),
        (line(ingest_time_ms=-1, device_id="e"), "invalid", "outside 0"),
        (line(payload="x" * 5_000), "oversized", "at most 1000 are allowed"),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_what_is_no_event_is_a_dead_letter_with_its_place(source, bad, route, words, is_last):
    bound = 1_000 if route == "oversized" else 200_000
    lines = [line(), line(device_id="e"), b"", bad, *([] if is_last else [line()])]
    (batch,) = read(source(b"\n".join(lines), maxRecordBytes=bound))
    (letter,) = batch.dead_letters
    assert (letter.route, letter.origin) == (route, "e.jsonl:4")
    assert words in letter.reason
    assert len(batch.events) == 2 + (not is_last)
    assert batch.counts.source_rows == 3 + (not is_last)


def test_a_line_of_many_chunks_is_one_dead_letter(source, monkeypatch):
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 64)
    long = line(payload="x" * 10_000)
    made = source(b"\n".join([line(), long, line(device_id="e"), long]), maxRecordBytes=1_000)
    (batch,) = read(made)
    assert [each.device_id for each in batch.events] == ["d", "e"]
    assert [letter.origin for letter in batch.dead_letters] == ["e.jsonl:2", "e.jsonl:4"]
    for limit in (1, 2, 3, 4):
        first = read(made, limit=limit)
        rest = read(made, {0: first[-1].offset})
        events = [each.device_id for batch in (*first, *rest) for each in batch.events]
        letters = [each.origin for batch in (*first, *rest) for each in batch.dead_letters]
        assert (events, letters) == (["d", "e"], ["e.jsonl:2", "e.jsonl:4"])


def test_a_file_that_grows_is_read_on(source):
    (batch,) = read(source(line()))
    assert read(source(None), {0: batch.offset}) == []
    (more,) = read(source(line() + b"\n" + line(device_id="e") + b"\n"), {0: batch.offset})
    assert [each.device_id for each in more.events] == ["e"]
    assert more.is_end


def test_a_partition_without_devices_does_not_hold_the_others_back(source, monkeypatch):
    monkeypatch.setattr(reader_module, "FLUSH_BYTES", 300)
    made = source(b"\n".join([line()] * 50))
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 400)
    reader = made.open({}, 4, 100)
    offsets = {batch.partition: batch.offset for batch in reader.read()}
    assert len(offsets) == 4
    assert not reader.is_done
    reader.close()
    [number] = {json.loads(offset)["line"] for offset in offsets.values()}
    assert 0 < number < 50
    rest = read(made, offsets, partitions=4)
    assert sum(len(batch.events) for batch in rest) == 50 - number


@pytest.mark.parametrize("data", [line() + b" ", line(page_id="q") + b"\n", b"", line()[:-5]])
def test_a_file_that_changed_is_refused(source, data):
    (batch,) = read(source(line()))
    with pytest.raises(SourceChangedError, match="differs at line 1"):
        read(source(data), {0: batch.offset})


def test_files_that_cannot_be_read(source, tmp_path):
    with pytest.raises(SourceNotFoundError, match=r"e\.jsonl"):
        read(source(None))
    with pytest.raises(SourceError, match="cannot be read"):
        read(source(b"\x1f\x8b" + b"x" * 100))
    with pytest.raises(SourceError, match="cannot be read"):
        _ = source(b"\x1f\x8b" + b"x" * 100).fingerprint


def test_a_byte_order_mark_is_passed_over(source):
    made = source(b"\xef\xbb\xbf" + line() + b"\n" + line(device_id="e") + b"\n")
    first = read(made, limit=1)
    rest = read(made, {0: first[-1].offset})
    assert [each.device_id for batch in (*first, *rest) for each in batch.events] == ["d", "e"]
    assert not [batch.dead_letters for batch in (*first, *rest) if batch.dead_letters]


def test_what_waits_for_a_host_counts_with_its_texts(source):
    (batch,) = read(source(line(contents={"text": "x" * 100_000}) + b"\n" + b"x\n" * 50))
    assert batch.size_bytes > 100_000 + 50 * 100
