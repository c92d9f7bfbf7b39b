import json

import pytest

from walle_connectors.kafka.source.fetching import Record, columns
from walle_connectors.kafka.source.records import RecordDecoder

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


def whole(device="d", **fields):
    return record(key=device.encode(), device_id=device, ingest_time_ms=9, **fields)


@pytest.fixture
def decoder():
    return RecordDecoder(1_000)


def test_key_and_time_of_the_record_are_the_events(decoder):
    # one that leaves its device to the key is decoded by itself
    assert decoder.decode_all(columns([record()])) is None
    bulk = decoder.decode_all(columns([whole(), whole(uid="2")]))
    for events in (decoder.decode(record()), decoder.decode(whole()), bulk[:1]):
        assert [(e.device_id, e.ingest_time_ms, e.uid) for e in events] == [("d", 1_000, "1")]
    assert bulk[1].uid == "2"


@pytest.mark.parametrize(
    ("bad", "route", "words"),
    [
        (Record(1, 1, b"d", None), "decode", "tombstone"),
        (Record(1, 1, b"d", b""), "decode", "is no event"),
        (Record(1, 1, b"d", b"{"), "decode", "is no event"),
        (Record(1, 1, b"d", b"[" * 900), "decode", "is no event"),
        (Record(1, 1, b"d", b"x" * 1_001), "oversized", "at most 1000 are allowed"),
        (record(1, key=None), "invalid", "no key"),
        (record(1, key=b""), "invalid", "the device id is empty"),
        (record(1, key=b"\xff"), "invalid", "not UTF-8"),
        (record(1, key=b"a\0b"), "invalid", "NUL"),
        (record(1, device_id="e"), "invalid", "device 'e' in the value, 'd' in the key"),
        (record(1, timestamp=-1), "invalid", "timestamp is missing or wrong"),
        (record(1, event_time_ms=-1), "invalid", "outside 0"),
        (Record(1, 1, b"d", b"\n".join([whole().value, whole().value])), "decode", "is no event"),
    ],
)
def test_a_wrong_record_is_refused_alone(decoder, bad, route, words):
    assert decoder.decode_all(columns([whole(), bad, whole()])) is None
    found, reason, _ = decoder.decode(bad)
    assert found == route
    assert words in reason


def test_line_ends_in_a_value_are_nobodys_business(decoder):
    spread = Record(0, 1, b"d", json.dumps({**VALUE, "device_id": "d"}, indent=1).encode())
    assert len(decoder.decode(spread)) == 1


def test_devices_of_a_batch_are_told_apart(decoder):
    events = decoder.decode_all(columns([whole(device) for device in "abab"]))
    assert [event.device_id for event in events] == list("abab")
    assert events[0].device_id is events[2].device_id
