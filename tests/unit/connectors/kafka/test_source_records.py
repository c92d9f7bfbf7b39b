import json

import pytest

from walle_connectors.kafka.source.fetching import Record, columns
from walle_connectors.kafka.source.records import BatchMaker

VALUE = {
    "id": "click",
    "kind": "click",
    "page_id": "p",
    "page_instance": "",
    "event_time_ms": 5,
    "uid": "1",
}


def record(offset=0, key=b"d", timestamp=1_000, **fields):
    return Record(offset, timestamp, key, json.dumps({**VALUE, **fields}).encode())


def make(*records, max_bytes=1_000, **keys):
    return BatchMaker("raw", max_bytes).make(3, columns(records), b"offset", **keys)


def whole(device="d", **fields):
    return record(key=device.encode(), device_id=device, ingest_time_ms=9, **fields)


@pytest.mark.parametrize("give", [record, whole])
def test_key_and_time_of_the_record_are_the_events(give):
    batch = make(give(), give(uid="2"), arrived_ms=7.0)
    assert [(e.device_id, e.ingest_time_ms, e.uid) for e in batch.events] == [
        ("d", 1_000, "1"),
        ("d", 1_000, "2"),
    ]
    assert (batch.partition, batch.offset, batch.arrived_ms) == (3, b"offset", 7.0)
    assert batch.counts.accepted_rows == batch.counts.source_rows == 2


@pytest.mark.parametrize(
    ("bad", "route", "words", "device"),
    [
        (Record(1, 1, b"d", None), "decode", "tombstone", "d"),
        (Record(1, 1, b"d", b""), "decode", "is no event", "d"),
        (Record(1, 1, b"d", b"{"), "decode", "is no event", "d"),
        (Record(1, 1, b"d", b"[" * 900), "decode", "is no event", "d"),
        (Record(1, 1, b"d", b"x" * 1_001), "oversized", "at most 1000 are allowed", "d"),
        (record(1, key=None), "invalid", "no key", ""),
        (record(1, key=b""), "invalid", "the device id is empty", ""),
        (record(1, key=b"\xff"), "invalid", "no UTF-8", ""),
        (record(1, key=b"a\0b"), "invalid", "NUL", ""),
        (record(1, device_id="e"), "invalid", "device 'e' in the value, 'd' in the key", "d"),
        (record(1, timestamp=-1), "invalid", "no time", "d"),
        (record(1, event_time_ms=-1), "invalid", "outside 0", "d"),
    ],
)
@pytest.mark.parametrize("give", [record, whole])
def test_one_wrong_record_is_refused_alone(give, bad, route, words, device):
    batch = make(give(uid="0"), bad, give(uid="2"))
    [letter] = batch.dead_letters
    assert (letter.route, letter.origin, letter.device_id) == (route, "raw[3]@1", device)
    assert words in letter.reason
    assert [event.uid for event in batch.events] == ["0", "2"]
    assert (batch.counts.source_rows, batch.counts.dead_letter_rows) == (3, 1)
    offsets = (give(uid="0").offset, give(uid="2").offset)
    assert batch.origins == ("raw[3]", list(offsets))
    assert batch.origins.of(1) == f"raw[3]@{offsets[1]}"


def test_line_ends_in_values_are_nobodys_business():
    spread = Record(0, 1, b"d", json.dumps({**VALUE, "device_id": "d"}, indent=1).encode())
    two = Record(1, 1, b"d", b"\n".join([whole().value, whole().value]))
    none = Record(2, 1, b"d", b"")
    batch = make(spread, two, none)
    assert len(batch.events) == 1
    assert [letter.origin for letter in batch.dead_letters] == ["raw[3]@1", "raw[3]@2"]


def test_raw_rows_are_the_values():
    records = [record(), Record(1, 1, b"d", None), record(2)]
    batch = make(*records, keeps_raw=True)
    assert batch.raw == b"\n".join([records[0].value, b"", records[2].value, b""])
    assert len(batch.raw) == batch.counts.raw_bytes
    assert make(*records).raw is None
    assert make(keeps_raw=True).raw is None


def test_devices_of_a_batch_are_told_apart():
    batch = make(*[whole(device) for device in "abab"])
    assert [event.device_id for event in batch.events] == list("abab")
    first, _, third, *_ = batch.events
    assert first.device_id is third.device_id
