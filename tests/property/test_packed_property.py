"""Packed events against the same events as lines; any cut, any kill, any damage."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_connectors.events import CONNECTOR
from walle_stream.events import KINDS, Event
from walle_stream.ports import Source, SourceBatch
from walle_stream.testing.source_log import (
    SourceLog,
    add,
    expect_same,
    new_log,
    offsets_of,
    read_out,
)
from walle_stream.types import TIME_MAX_MS
from walle_stream.wire.event_blocks import FILE_HEAD_BYTES, encode_file_head
from walle_stream.wire.event_builder import BlockBuilder

PARTITIONS = 3
MARKER = bytes(range(12))

values = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=4)
times = st.integers(0, TIME_MAX_MS) | st.integers(0, 50)
events = st.builds(
    Event,
    device_id=st.sampled_from(["a", "b", "ü", "d" * 40]) | st.text("xyz", min_size=1),
    id=st.sampled_from(["tap", "click", ""]),
    kind=st.sampled_from(KINDS),
    page_id=st.text(max_size=3),
    page_instance=st.sampled_from(["", "1", "2"]),
    event_time_ms=times,
    ingest_time_ms=times,
    contents=st.dictionaries(st.text(max_size=3), values | st.lists(values), max_size=3),
    uid=st.text("abc", max_size=3),
)
records = st.lists(st.tuples(events, st.binary(max_size=20)), max_size=25)
# an event that a source must refuse, alone
strange = st.sampled_from([{"device_id": ""}, {"device_id": "\0"}, {"event_time_ms": -1}])
sizes = st.sampled_from([1, 2, 5, 100])
block_sizes = st.sampled_from([1, 150, 400, 65_536])

type Records = Sequence[tuple[Event, bytes]]


def blocks_of(found: Records, block_bytes: int) -> list[bytes]:
    """Return the file's parts: its head, then its blocks."""
    builder = BlockBuilder(MARKER, block_bytes)
    parts = [encode_file_head(MARKER), *(builder.add(*each) for each in found), builder.flush()]
    return [part for part in parts if part]


def lines_of(found: Records) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event, _ in found)


@contextmanager
def written(data: bytes) -> Iterator[Source]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events"
        path.write_bytes(data)
        yield CONNECTOR.open(CONNECTOR.model.model_validate({"path": path}))


def whole(source: Source, size: int = 100) -> SourceLog:
    log = new_log(PARTITIONS)
    add(log, read_out(source.open({}, PARTITIONS, size)))
    return log


def expect_same_events(found: SourceLog, wanted: SourceLog) -> None:
    """Compare what does not depend on the format: bytes and places do."""
    for partition, own in wanted.items():
        other = found[partition]
        assert other.events == own.events
        assert other.ends == own.ends == 1
        for name in ("source_rows", "accepted_rows", "dead_letter_rows"):
            assert getattr(other.counts, name) == getattr(own.counts, name)
        said = [[(each.route, each.reason) for each in log.dead_letters] for log in (other, own)]
        assert said[0] == said[1]


@given(found=records, wrong=st.lists(st.tuples(st.integers(0, 24), strange)), data=st.data())
@settings(max_examples=60)
def test_packed_events_are_those_of_the_lines(
    found: Records, wrong: list[tuple[int, dict[str, object]]], data: st.DataObject
) -> None:
    found = list(found)
    for place, fields in wrong:
        if place < len(found):
            event, payload = found[place]
            found[place] = (msgspec.structs.replace(event, **fields), payload)
    parts = blocks_of(found, data.draw(block_sizes))
    with written(lines_of(found)) as lines, written(b"".join(parts)) as packed:
        expect_same_events(whole(packed, data.draw(sizes)), whole(lines))


def some_of(data: st.DataObject, runs: Sequence[Sequence[SourceBatch]]) -> SourceLog:
    """Commit a random number of batches of each partition, from different runs."""
    log = new_log(PARTITIONS)
    for partition in range(PARTITIONS):
        run = data.draw(st.sampled_from(runs))
        own = [batch for batch in run if batch.partition == partition]
        add(log, own[: data.draw(st.integers(0, len(own)))])
    return log


def damaged(data: st.DataObject, file: bytes) -> bytes:
    """Flip a byte or some, behind the file's head."""
    found = bytearray(file)
    places = st.integers(min(FILE_HEAD_BYTES, len(file) - 1), len(file) - 1)
    for place in data.draw(st.lists(places, max_size=4)):
        found[place] ^= data.draw(st.integers(1, 255))
    return bytes(found) if len(file) > FILE_HEAD_BYTES else file


@given(found=records, data=st.data())
@settings(max_examples=60)
def test_any_combination_of_offsets_gives_exactly_the_rest(
    found: Records, data: st.DataObject
) -> None:
    file = damaged(data, b"".join(blocks_of(found, data.draw(block_sizes))))
    with written(file) as source:
        log = some_of(data, [read_out(source.open({}, PARTITIONS, size)) for size in (1, 3)])
        add(log, read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes))))
        expect_same(log, whole(source), "resumed")


@given(found=records, data=st.data())
@settings(max_examples=60)
def test_limits_and_kills_before_the_rest_change_nothing(
    found: Records, data: st.DataObject
) -> None:
    file = damaged(data, b"".join(blocks_of(found, data.draw(block_sizes))))
    with written(file) as source:
        log = new_log(PARTITIONS)
        for _ in range(data.draw(st.integers(1, 3))):
            reader = source.open(
                offsets_of(log), PARTITIONS, data.draw(sizes), data.draw(st.integers(0, 12))
            )
            batches = read_out(reader)
            if data.draw(st.booleans()):  # killed: each partition committed some of it
                kept = {p: data.draw(st.integers(0, len(batches))) for p in range(PARTITIONS)}
                batches = [b for n, b in enumerate(batches) if n < kept[b.partition]]
            add(log, batches)
        add(log, read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes))))
        expect_same(log, whole(source), "limits")


@given(found=records, data=st.data())
@settings(max_examples=100)
def test_damage_costs_the_damaged_blocks_and_nothing_else(
    found: Records, data: st.DataObject
) -> None:
    parts = blocks_of(found, data.draw(block_sizes))
    file = b"".join(parts)
    broken = damaged(data, file)
    if data.draw(st.booleans()):
        broken = broken[: max(data.draw(st.integers(0, len(file))), FILE_HEAD_BYTES)]
    if data.draw(st.booleans()):  # or some bytes are lost in the middle
        place = data.draw(st.integers(FILE_HEAD_BYTES, max(len(broken), FILE_HEAD_BYTES)))
        broken = broken[:place] + broken[place + data.draw(st.integers(0, 200)) :]
    # block by block: its events come when nothing in it was touched; when its payloads
    # were, they may come as well
    wanted: list[Event] = []
    allowed: list[Event] = []
    taken = 0
    for part in parts[1:]:
        count = int.from_bytes(part[12:16], "little")
        own = [event for event, _ in found[taken : taken + count]]
        if part in broken:
            wanted += own
        allowed += own
        taken += count
    with written(broken) as source:
        log = whole(source, data.draw(sizes))
    got = [msgspec.json.encode(each) for own in log.values() for each in own.events]
    for each in wanted:
        assert msgspec.json.encode(each) in got
    names = [msgspec.json.encode(each) for each in allowed]
    for each in got:
        names.remove(each)
    assert all(own.ends == 1 for own in log.values())
    places = [letter.origin for own in log.values() for letter in own.dead_letters]
    assert len(set(places)) == len(places)


@given(found=records, data=st.data())
@settings(max_examples=40)
def test_a_file_that_grows_block_by_block_goes_on(found: Records, data: st.DataObject) -> None:
    parts = blocks_of(found, data.draw(block_sizes))
    log = new_log(PARTITIONS)
    for count in sorted({*data.draw(st.lists(st.integers(1, len(parts)), max_size=2)), len(parts)}):
        with written(b"".join(parts[:count])) as source:
            add(log, read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes))))
    with written(b"".join(parts)) as source:
        for partition, own in whole(source).items():
            assert log[partition].events == own.events
    assert all(json.loads(own.offset or b"{}")["is_end"] for own in log.values())


@given(junk=st.binary(max_size=300), at=st.integers(0, 3))
@settings(max_examples=60)
def test_bytes_between_blocks_are_dead_letters(junk: bytes, at: int) -> None:
    found = [
        (Event(f"d{n}", "click", "click", "p", "", n, n, {}, str(n)), b"x" * n) for n in range(4)
    ]
    parts = blocks_of(found, 1)
    parts.insert(at + 1, junk)
    with written(b"".join(parts)) as source:
        log = whole(source)
    assert sum(len(own.events) for own in log.values()) == 4
    assert sum(len(own.dead_letters) for own in log.values()) == bool(junk)
