"""Any file, any cut, any kill: the events are those of a naive reading."""

import csv
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from walle_connectors.files import CONNECTOR
from walle_stream.ports import Source, SourceBatch
from walle_stream.reading.mapping.records import BrokenRow, CsvRecords
from walle_stream.testing.source_log import (
    SourceLog,
    add,
    expect_same,
    new_log,
    offsets_of,
    read_out,
)
from walle_stream.types import partition_of

PARTITIONS = 3


class Row(NamedTuple):
    """A row of the random files."""

    device: str
    item: str
    time_ms: int
    stay_ms: int
    back_ms: int

    @property
    def events(self) -> list[tuple[int, str]]:
        found = [(self.time_ms, "exposure")]
        if self.stay_ms > 0:
            found += [(self.time_ms, "page_enter"), (self.time_ms + self.stay_ms, "page_exit")]
        if self.back_ms > 0:
            found.append((max(self.time_ms - self.back_ms, 0), "click"))
        return found


class Order(NamedTuple):
    """How a random file is read."""

    scope: str
    lateness_ms: int


rows = st.lists(
    st.builds(
        Row,
        device=st.sampled_from("abcde"),
        item=st.sampled_from("xy"),
        # few values: ties, duplicates and late rows are common
        time_ms=st.integers(0, 40),
        stay_ms=st.sampled_from([0, 0, 1, 5, 30]),
        back_ms=st.sampled_from([0, 0, 0, 7]),
    ),
    max_size=25,
)
sorted_rows = rows.map(lambda found: sorted(found, key=lambda row: row.time_ms))
orders = st.builds(Order, st.sampled_from(["global", "device"]), st.sampled_from([0, 0, 6]))
sizes = st.sampled_from([1, 2, 5, 100])


@contextmanager
def written(found: Sequence[Row], order: Order) -> Iterator[Source]:
    """Yield a source over a file with these rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write(path, found)
        yield opened(path, order)


def write(path: Path, found: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Row._fields, *found])


def opened(path: Path, order: Order) -> Source:
    keys = {
        "path": path,
        "format": "csv",
        "columns": dict.fromkeys(("time_ms", "stay_ms", "back_ms"), "int"),
        "device": "device",
        "time": "time_ms",
        "identity": ["device", "item", "time_ms"],
        "order": {"scope": order.scope, "lateness": f"{order.lateness_ms}ms"},
        "events": [
            {"kind": "exposure", "page": "item"},
            {"kind": "page_enter", "when": "stay_ms > 0", "page": "item"},
            {"kind": "page_exit", "when": "stay_ms > 0", "at": "time_ms + stay_ms", "page": "item"},
            {
                "kind": "click",
                "when": "back_ms > 0",
                "at": "max(time_ms - back_ms, 0)",
                "page": "item",
            },
        ],
    }
    return CONNECTOR.open(CONNECTOR.model.model_validate(keys))


def naive(  # noqa: C901 - one plain function to read from top to bottom
    found: Sequence[Row], order: Order, ends: set[int]
) -> list[dict[str, Any]]:
    """Recompute what each partition gets, in the plainest way."""
    parts: list[dict[str, Any]] = [
        {"events": [], "accepted": 0, "duplicate": 0, "late": 0} for _ in range(PARTITIONS)
    ]
    seen: set[tuple[str, str, int]] = set()
    scopes: dict[str, dict[str, Any]] = {}

    def release(scope: dict[str, Any], up_to_ms: float) -> None:
        due = sorted(held for held in scope["held"] if held[0] <= up_to_ms)
        scope["held"] = [held for held in scope["held"] if held[0] > up_to_ms]
        for at_ms, number, place, kind in due:
            row = found[number]
            event = (row.device, kind, row.item, at_ms, row.time_ms)
            parts[partition_of(row.device, PARTITIONS)]["events"].append((event, place))
            scope["released"] = max(scope["released"], at_ms)

    def end() -> None:
        everything = {"held": [], "released": -1}
        for scope in scopes.values():
            everything["held"] += scope["held"]
            scope["released"] = max([scope["released"], *(held[0] for held in scope["held"])])
            scope["held"] = []
        release(everything, float("inf"))

    for number, row in enumerate(found):
        if number in ends:
            end()
        name = row.device if order.scope == "device" else ""
        scope = scopes.setdefault(name, {"held": [], "released": -1, "highest": -1})
        part = parts[partition_of(row.device, PARTITIONS)]
        identity = row[:3]
        if identity in seen:
            part["duplicate"] += 1
            continue
        seen.add(identity)
        if row.time_ms < scope["released"]:
            part["late"] += 1
            continue
        part["accepted"] += 1
        scope["highest"] = max(scope["highest"], row.time_ms)
        for place, (at_ms, kind) in enumerate(row.events):
            scope["held"].append((at_ms, number, place, kind))
        release(scope, scope["highest"] - order.lateness_ms)
    if len(found) in ends:
        end()
    return parts


def check(log: SourceLog, wanted: list[dict[str, Any]]) -> None:
    for partition, part in enumerate(wanted):
        own = log[partition]
        events = [
            (e.device_id, e.kind, e.page_id, e.event_time_ms, e.ingest_time_ms) for e in own.events
        ]
        assert events == [event for event, _ in part["events"]]
        counts = own.counts
        assert counts.accepted_rows == part["accepted"]
        assert counts.duplicate_rows == part["duplicate"]
        assert counts.late_rows == part["late"] == len(own.dead_letters)


def some_of(data: st.DataObject, runs: Sequence[Sequence[SourceBatch]]) -> SourceLog:
    """Commit a random number of batches of each partition, from different runs."""
    log = new_log(PARTITIONS)
    for partition in range(PARTITIONS):
        run = data.draw(st.sampled_from(runs))
        own = [batch for batch in run if batch.partition == partition]
        add(log, own[: data.draw(st.integers(0, len(own)))])
    return log


@given(found=rows | sorted_rows, order=orders, size=sizes)
@settings(max_examples=100)
def test_events_are_those_of_a_naive_reading(found: list[Row], order: Order, size: int) -> None:
    with written(found, order) as source:
        log = new_log(PARTITIONS)
        add(log, read_out(source.open({}, PARTITIONS, size)))
    check(log, naive(found, order, {len(found)}))
    assert all(own.ends == 1 for own in log.values())


@given(found=rows | sorted_rows, order=orders, data=st.data())
@settings(max_examples=100)
def test_any_combination_of_offsets_gives_exactly_the_rest(
    found: list[Row], order: Order, data: st.DataObject
) -> None:
    with written(found, order) as source:
        runs = [read_out(source.open({}, PARTITIONS, size)) for size in (1, 3)]
        log = some_of(data, runs)
        add(log, read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes))))
    check(log, naive(found, order, {len(found)}))
    assert all(own.ends == 1 for own in log.values())


@given(found=rows | sorted_rows, order=orders, data=st.data())
@settings(max_examples=100)
def test_limits_and_kills_before_the_rest_change_nothing(
    found: list[Row], order: Order, data: st.DataObject
) -> None:
    with written(found, order) as source:
        whole = new_log(PARTITIONS)
        add(whole, read_out(source.open({}, PARTITIONS, 100)))
        log = new_log(PARTITIONS)
        for _ in range(data.draw(st.integers(1, 3))):
            limit = data.draw(st.integers(0, 12))
            batches = read_out(
                source.open(offsets_of(log), PARTITIONS, data.draw(sizes), limit=limit)
            )
            if data.draw(st.booleans()):  # killed: each partition committed some of it
                kept = {p: data.draw(st.integers(0, len(batches))) for p in range(PARTITIONS)}
                batches = [b for n, b in enumerate(batches) if n < kept[b.partition]]
            add(log, batches)
        add(log, read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes))))
    expect_same(log, whole, "limits")


@given(found=rows | sorted_rows, order=orders, data=st.data())
@settings(max_examples=100)
def test_a_file_that_grows_after_its_end_goes_on_behind_it(
    found: list[Row], order: Order, data: st.DataObject
) -> None:
    lengths = sorted({*data.draw(st.lists(st.integers(0, len(found)), max_size=2)), len(found)})
    log, ends = new_log(PARTITIONS), set[int]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        for length in lengths:
            write(path, found[:length])
            source = opened(path, order)
            batches = read_out(source.open(offsets_of(log), PARTITIONS, data.draw(sizes)))
            if length < len(found):  # killed here: each partition committed some of it
                kept = {p: data.draw(st.integers(0, len(batches))) for p in range(PARTITIONS)}
                batches = [b for n, b in enumerate(batches) if n < kept[b.partition]]
            add(log, batches)
            for offset in offsets_of(log).values():
                ends |= set(json.loads(offset)["ends"])
    check(log, naive(found, order, ends))
    assert all(own.ends == len(ends) for own in log.values())


@given(
    table=st.lists(
        st.tuples(*[st.text(st.sampled_from('ab",\n\r ä')) | st.text()] * 3), min_size=1
    ),
    delimiter=st.sampled_from(",;\t"),
)
@settings(max_examples=200)
def test_any_table_that_python_writes_is_read_as_it_was(
    table: list[tuple[str, ...]], delimiter: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows([("a", "b", "c"), *table])
    data = text.getvalue().encode(errors="replace")
    wanted = [[cell.encode(errors="replace").decode() for cell in row] for row in table]
    records = CsvRecords(io.BytesIO(data), delimiter, '"', 2**20)
    assert records.header() == ["a", "b", "c"]
    assert [record[0] for record in records.rows(3)] == wanted


@given(
    data=st.binary()
    | st.lists(st.sampled_from([b'"', b",", b"\n", b"\r\n", b"ab", b"\xff", b'""'])).map(b"".join),
    limit=st.sampled_from([5, 20, 1_000]),
)
@settings(max_examples=300)
def test_any_bytes_are_rows_or_broken_rows_and_none_is_lost(data: bytes, limit: int) -> None:
    records = list(CsvRecords(io.BytesIO(data), ",", '"', limit).rows(2))
    blank = sum(len(line) for line in data.split(b"\n") if line == b"\r")
    blank += sum(not line.strip(b"\r") for line in data.split(b"\n")[:-1])
    taken = sum(record[1] for record in records)
    assert len(data) - blank <= taken <= len(data)
    assert [record[3] for record in records] == sorted({record[3] for record in records})
    for values, size, *_ in records:
        assert isinstance(values, BrokenRow) or (len(values) == 2 and size <= limit)
