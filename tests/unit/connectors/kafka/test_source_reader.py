"""The reader keeps the contract of sources over a topic in memory, with a mapping and without."""

import json
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from tests.unit.connectors.kafka.topic_double import Client, Fetcher
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.source.fetching import Record
from walle_stream.errors import SourceChangedError
from walle_stream.testing.source_suite import SourceSuite

EVENT = {"id": "click", "kind": "click", "page_id": "p", "page_instance": "", "uid": "1"}
VIEW = {
    "time": "get('ts', 5)",
    "events": [
        {"kind": "page_enter", "page": "'item'", "instance": "str(visit)"},
        {"kind": "page_exit", "at": "get('ts', 5) + 7", "page": "'item'", "instance": "str(visit)"},
    ],
}
EXPLODED = {
    "explode": "taps",
    "device": "user",
    "events": [
        {"kind": "click", "each": {"name": "x", "in": "get('tags')"}, "page": "screen", "id": "x"}
    ],
}


@pytest.fixture(autouse=True)
def _topics(monkeypatch):
    monkeypatch.setattr(Client, "topics", {})
    monkeypatch.setattr("walle_connectors.kafka.source.opening.TopicClient", Client)
    monkeypatch.setattr("walle_connectors.kafka.source.opening.open_fetcher", Fetcher)


def source(values, topic="raw", **keys):
    """Return a source over (partition, key, value); a value is encoded unless it is bytes."""
    partitions = Client.topics[topic] = [[] for _ in range(4)]
    for number, (partition, key, value) in enumerate(values):
        offset = 3 * len(partitions[partition]) + 1  # others are of no record
        text = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        partitions[partition].append(Record(offset, 1_000 + number, key, text))
    given = {"brokers": "h:1", "topic": topic, "stopAtEnd": True, "maxRecordBytes": 500, **keys}
    return CONNECTOR.open(CONNECTOR.model.model_validate(given))


def read(made, offsets=None, batch_events=100, limit=None):
    reader, batches = made.open(offsets or {}, 4, batch_events, limit), []
    while not reader.is_done:
        batches += reader.read()
    return batches


def spread(values):
    """Put values on devices of partitions 0 to 2, with some that nothing can be made of."""
    found = [(n % 3, b"%c" % (97 + n % 3), value) for n, value in enumerate(values)]
    bad = [(0, b"a", b"{"), (1, b"b", None), (2, None, values[0]), (1, b"b", b"x" * 600)]
    return found[:5] + bad + found[5:]


class TestEvents(SourceSuite):
    values: ClassVar = [EVENT | {"event_time_ms": number} for number in range(12)]

    def make_source(self, folder):
        del folder
        return source(spread(self.values))

    def make_changed_source(self, folder):
        del folder
        return source([], topic="other")


class TestMapped(SourceSuite):
    mapping: ClassVar = VIEW
    values: ClassVar = [{"ts": number, "visit": number} for number in range(10)] + [
        {"ts": "soon"},
        {"ts": 4},
    ]

    def make_source(self, folder):
        del folder
        return source(spread(self.values), mapping=self.mapping)

    def make_changed_source(self, folder):
        del folder
        return source([], mapping={**self.mapping, "let": {"x": "1"}})


class TestExploded(TestMapped):
    """Many events of one record, or none, and records whose device is another one."""

    mapping = EXPLODED
    values = [
        {"user": "abc"[number % 3], "taps": [{"screen": "s", "tags": ["x"] * (k + number % 4)} for k in range(3)]}
        for number in range(12)
    ] + [{"user": "z", "taps": [{"screen": "s"}]}, {"user": "b", "taps": [{"screen": 1.5, "tags": ["x"]}]}]  # fmt: skip


class TestCsv(TestMapped):
    mapping: ClassVar = {
        "format": "csv",
        "columns": {"user": "str", "ts": "int", "screen": "str"},
        "device": "user",
        "time": "ts",
        "events": [{"kind": "click", "page": "screen"}],
    }
    values = [b"%c,%d,home" % (97 + n % 3, n) for n in range(9)] + [b"a,1", b"b,1,x\nb,2,y", b'c,2,"a,b"']  # fmt: skip


def test_a_row_is_mapped_as_a_files_and_the_record_says_what_is_left_out():
    values = [(0, b"a", {"visit": 7}), (0, b"a", {"ts": 90, "visit": 8})]
    batches = read(source(values, mapping=VIEW))
    events = [event for batch in batches for event in batch.events]
    assert [(e.device_id, e.kind, e.page_instance, e.event_time_ms, e.ingest_time_ms) for e in events] == [
        ("a", "page_enter", "7", 5, 1_000),
        ("a", "page_exit", "7", 12, 1_000),
        ("a", "page_enter", "8", 90, 1_001),
        ("a", "page_exit", "8", 97, 1_001),
    ]  # fmt: skip
    left_out = {**EXPLODED, "explode": None, "events": [{"kind": "click", "page": "'p'"}]}
    [event] = [
        e for b in read(source([(0, b"u", {"user": "u"})], mapping=left_out)) for e in b.events
    ]
    assert (event.event_time_ms, event.ingest_time_ms) == (1_000, 1_000)


@pytest.mark.parametrize(
    ("value", "route", "words"),
    [
        (b"[]", "decode", "not a JSON record"),
        ({"user": "a"}, "invalid", "has no list 'taps'"),
        ({"user": "e", "taps": [{}]}, "invalid", "device 'e' in the value, 'a' in the key"),
        ({"user": "a", "taps": [{"tags": ["x"], "screen": "s"}, {"tags": ["x"]}]}, "invalid", "[1] events[0].page: "),
    ],
)  # fmt: skip
def test_a_record_is_taken_whole_or_is_a_dead_letter(value, route, words):
    batches = read(source([(0, b"a", value)], mapping=EXPLODED))
    [letter] = [letter for batch in batches for letter in batch.dead_letters]
    assert (letter.route, letter.origin, letter.device_id) == (route, "raw[0]@1", "a")
    assert words in letter.reason
    assert letter.record == (value if isinstance(value, bytes) else json.dumps(value).encode())
    assert not any(batch.events for batch in batches)


def test_events_of_one_record_may_come_in_parts_and_it_is_counted_once():
    value = {"user": "a", "taps": [{"screen": "s", "tags": list("vwxyz")}]}
    made = source([(0, b"a", value), (0, b"a", value)], mapping=EXPLODED)
    batches = [
        batch for batch in read(made, batch_events=2) if batch.counts.raw_bytes or batch.events
    ]
    assert ["".join(e.id for e in batch.events) for batch in batches] == [
        "vw",
        "xy",
        "zv",
        "wx",
        "yz",
    ]
    assert [batch.counts.source_rows for batch in batches] == [1, 0, 1, 0, 0]
    for place, batch in enumerate(batches):
        rest = read(made, {0: batch.offset})
        ids = "".join(e.id for each in rest for e in each.events)
        assert ids == "vwxyz" * 2 if place < 0 else ids == ("vwxyz" * 2)[2 * place + 2 :]


def test_another_mapping_is_another_source():
    stored = source([], mapping=VIEW).fingerprint
    with pytest.raises(SourceChangedError, match="maps it to events in another way"):
        source([]).check_fingerprint(stored)


def test_lag_is_in_records_and_in_time(monkeypatch):
    monkeypatch.setattr("walle_connectors.kafka.source.reader.wall_ms", lambda: 5_000)
    values = [(0, b"a", EVENT | {"event_time_ms": number}) for number in range(4)]
    reader = source(values).open({}, 4, 2)
    assert (reader.unread.rows, reader.unread.time_ms) == (11, -1)  # offsets of no record count
    while not any(batch.events for batch in reader.read()):
        pass  # where partitions begin comes first
    assert (reader.unread.rows, reader.unread.time_ms) == (6, 5_000 - 1_001)
    while not reader.is_done:
        reader.read()
    assert (reader.unread.rows, reader.unread.time_ms) == (0, 0)


def test_the_example_of_the_page_runs():
    page = (Path(__file__).parents[4] / "docs" / "sources.md").read_text(encoding="utf-8")
    example = page.partition("## A topic of foreign records")[2].partition("```yaml\n")[2]
    keys = yaml.safe_load(example.partition("```")[0])["source"]
    order = {
        "user": "u1",
        "when": "2026-01-01T00:00:00Z",
        "session": {"id": 7},
        "lines": [{"sku": "a", "price": 2.5}, {"sku": "b", "price": 1}],
    }
    batches = read(source([(0, b"u1", order)], mapping=keys["mapping"]))
    events = [event for batch in batches for event in batch.events]
    assert [(e.kind, e.page_id, e.page_instance, e.contents.get("price")) for e in events] == [
        ("page_enter", "order", "7", None),
        ("page_exit", "order", "7", 2.5),
        ("page_enter", "order", "7", None),
        ("page_exit", "order", "7", 1),
    ]
    assert {e.event_time_ms - 1_767_225_600_000 for e in events} == {0, 5}
