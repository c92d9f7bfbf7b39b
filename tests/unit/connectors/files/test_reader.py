import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from walle_connectors.files import FilesSource
from walle_connectors.files.reader import FLUSH_ROWS
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, SourceBatch
from walle_stream.reading.dead_letters import text_digest
from walle_stream.types import partition_of

type Make = Callable[..., FilesSource]
type Read = Callable[..., list[SourceBatch]]
type Batches = Sequence[SourceBatch]

EXIT = [
    {"kind": "page_enter", "page": "'p'", "contents": {"n": "n"}},
    {"kind": "page_exit", "at": "t + n", "page": "'p'", "contents": {"n": "n"}},
]
KEYS: dict[str, Any] = {
    "columns": {"t": "int", "n": "int"},
    "events": EXIT,
    "order": {"scope": "global"},
}


def events(batches: Batches) -> list[Event]:
    return [event for batch in batches for event in batch.events]


def marks(batches: Batches) -> list[tuple[str, str, int]]:
    return [(e.device_id, e.kind[5:], e.event_time_ms) for e in events(batches)]


def letters(batches: Batches) -> list[DeadLetter]:
    return [letter for batch in batches for letter in batch.dead_letters]


def counts(batches: Batches) -> tuple[int, ...]:
    names = ("source", "accepted", "duplicate", "late", "dead_letter")
    return tuple(sum(getattr(b.counts, f"{n}_rows") for b in batches) for n in names)


def test_event_is_held_until_a_row_reaches_its_time(make: Make, read: Read) -> None:
    source = make("d,t,n\na,1,5\nb,3,9\nc,6,9\n", **KEYS)
    assert marks(read(source, limit=2)) == [("a", "enter", 1), ("b", "enter", 3)]
    assert marks(read(source)) == [
        ("a", "enter", 1),
        ("b", "enter", 3),
        ("a", "exit", 6),
        ("c", "enter", 6),
        ("b", "exit", 12),
        ("c", "exit", 15),
    ]


def test_ties_come_in_the_order_of_rows_then_of_the_row(make: Make, read: Read) -> None:
    source = make("d,t,n\na,1,5\nb,1,5\nc,6,0\n", **KEYS)
    assert [mark[:2] for mark in marks(read(source))[2:]] == [
        ("a", "exit"),
        ("b", "exit"),
        ("c", "enter"),
        ("c", "exit"),
    ]


def test_ingest_time_is_the_time_of_the_row(make: Make, read: Read) -> None:
    found = events(read(make("d,t,n\na,1,5\n", **KEYS)))
    assert [event.ingest_time_ms for event in found] == [1, 1]


def test_row_below_what_was_released_is_late_and_a_dead_letter(make: Make, read: Read) -> None:
    batches = read(make("d,t,n\na,5,1\nb,4,1\nc,5,1\n", **KEYS))
    assert counts(batches) == (3, 2, 0, 1, 0)
    (letter,) = letters(batches)
    assert (letter.route, letter.origin, letter.device_id) == ("late", "rows.csv:3", "b")
    assert (letter.raw, letter.digest) == ("b,4,1", text_digest(b"b,4,1\n"))
    assert letter.reason == "its time 4 is below 5, which was released already"


def test_lateness_holds_events_until_late_rows_found_their_place(make: Make, read: Read) -> None:
    rows = "d,t,n\na,5,0\nb,4,0\nc,2,0\nd,20,0\n"
    batches = read(make(rows, **{**KEYS, "order": {"scope": "global", "lateness": "2ms"}}))
    # 3 was not released yet when c came: nothing is lost before a row is released
    assert [mark[0] for mark in marks(batches)[::2]] == ["c", "b", "a", "d"]
    assert counts(batches) == (4, 4, 0, 0, 0)


def test_order_of_a_device_knows_nothing_of_the_others(make: Make, read: Read) -> None:
    rows = "d,t,n\na,50,5\na,60,5\nb,1,5\na,40,5\nb,6,5\n"
    batches = read(make(rows, **{**KEYS, "order": {"scope": "device"}}))
    assert counts(batches) == (5, 4, 0, 1, 0)
    assert [mark for mark in marks(batches) if mark[0] == "b"] == [
        ("b", "enter", 1),
        ("b", "exit", 6),
        ("b", "enter", 6),
        ("b", "exit", 11),
    ]


def test_first_row_of_an_identity_counts_even_when_it_was_late(make: Make, read: Read) -> None:
    rows = "d,t,n\na,5,0\na,5,9\nb,4,0\nb,4,1\n"
    batches = read(make(rows, **KEYS, identity=["d", "t"]))
    assert counts(batches) == (4, 1, 2, 1, 0)
    assert events(batches)[0].contents == {"n": 0}


def test_invalid_row_leaves_no_trace(make: Make, read: Read) -> None:
    event = {"kind": "click", "page": "'p'", "contents": {"v": "1 // n"}}
    rows = "d,t,n\na,900,0\na,900,1\nb,5,1\n"
    batches = read(
        make(
            rows, columns=KEYS["columns"], order=KEYS["order"], identity=["d", "t"], events=[event]
        )
    )
    assert counts(batches) == (3, 1, 0, 1, 1)
    batches = read(
        make(
            "d,t,n\na,900,0\nb,5,1\n", columns=KEYS["columns"], order=KEYS["order"], events=[event]
        )
    )
    assert counts(batches) == (2, 1, 0, 0, 1)
    (letter,) = letters(batches)
    assert (letter.route, letter.device_id, letter.error) == ("invalid", "a", "ZeroDivisionError")
    assert letter.reason.startswith("events[0].contents.v: ")


def test_row_that_would_fail_is_a_duplicate_first(make: Make, read: Read) -> None:
    event = {"kind": "click", "page": "'p'", "contents": {"v": "1 // n"}}
    rows = "d,t,n\na,9,1\na,9,0\nb,8,0\n"
    batches = read(
        make(
            rows, columns=KEYS["columns"], order=KEYS["order"], identity=["d", "t"], events=[event]
        )
    )
    assert counts(batches) == (3, 1, 1, 1, 0)


@pytest.mark.parametrize(
    ("row", "route", "reason"),
    [
        (b"a,x", "invalid", "column t: invalid literal"),
        (b"a,", "invalid", "column t: invalid literal"),
        (b",5", "invalid", "device: the device id is empty"),
        (b"a\0b,5", "invalid", "device: the device id contains NUL"),
        (b"a" * 1_025 + b",5", "invalid", "device: the device id has 1025 bytes"),
        (b"a", "decode", "the row has 1 columns, the header has 2"),
        (b"\xff,5", "decode", "not UTF-8"),
        (b'"a,5', "decode", "a quote is not closed before the end"),
        (b"a,5" + b" " * 3_000, "oversized", "the record has 3003 bytes, at most 2048"),
    ],
)
def test_bad_row_is_a_dead_letter_with_the_reason(
    make: Make, read: Read, row: bytes, route: str, reason: str
) -> None:
    batches = read(make(b"d,t\nok,1\n" + row, maxRecordBytes="2KiB"))
    assert counts(batches) == (2, 1, 0, 0, 1)
    (letter,) = letters(batches)
    assert (letter.route, letter.origin) == (route, "rows.csv:3")
    assert letter.reason.startswith(reason)
    assert letter.raw == row.decode(errors="replace")[:1_024]
    assert letter.digest == text_digest(row)


def test_exploded_row_names_its_place_in_the_line(make: Make, read: Read) -> None:
    text = '{"d":"a","rows":[{"t":1},{"t":"x"}]}\n'
    batches = read(make(text, format="jsonl", explode="rows"))
    assert [letter.origin for letter in letters(batches)] == ["rows.jsonl:1[1]"]
    assert sum(batch.counts.raw_bytes for batch in batches) == len(text)


def test_bytes_of_rows_are_counted_without_header_and_blank_lines(make: Make, read: Read) -> None:
    batches = read(make("d,t\n\na,1\r\n\nb,x\n\n"))
    assert sum(batch.counts.raw_bytes for batch in batches) == 9


def test_rows_of_a_device_are_counted_in_its_partition(make: Make, read: Read) -> None:
    batches = read(make("d,t\na,1\na,x\nbroken\n"), partition_count=4)
    by_partition = {batch.partition: batch.counts.source_rows for batch in batches}
    home = partition_of("a", 4)
    assert home != 0
    assert (by_partition[home], by_partition[0]) == (2, 1)


def test_file_without_rows_ends_at_once(make: Make, read: Read) -> None:
    (batch,) = read(make("d,t\n"))
    assert (batch.is_end, len(batch.events), batch.counts.source_rows) == (True, 0, 0)


def test_full_batch_is_handed_out_before_the_rest_is_read(make: Make) -> None:
    reader = make("d,t\n" + "a,1\n" * 100).open({}, 1, 3)
    (batch,) = reader.read()
    assert (len(batch.events), reader.is_done) == (3, False)
    assert batch.size_bytes > 0
    reader.close()


def test_partly_filled_batches_are_handed_out_after_some_rows(make: Make) -> None:
    reader = make("d,t\n" + "a,1\n" * (FLUSH_ROWS * 4 + 5)).open({}, 4, 100_000)
    sizes: list[int] = []
    while not reader.is_done:
        sizes += [len(batch.events) for batch in reader.read() if batch.events]
    reader.close()
    assert sizes == [2 * FLUSH_ROWS, 2 * FLUSH_ROWS, 5]


def test_large_rows_are_handed_out_before_they_fill_the_memory(make: Make) -> None:
    row = "a,1," + "x" * 1_000_000 + "\n"
    source = make("d,t,x\n" + row * 40, maxRecordBytes="2MiB")
    reader = source.open({}, 1, 100_000)
    while not reader.is_done:
        assert sum(batch.counts.raw_bytes for batch in reader.read()) <= 10_000_000
    reader.close()


def test_limit_counts_rows_of_all_kinds_and_releases_nothing(make: Make, read: Read) -> None:
    source = make("d,t,n\na,1,5\nbroken\na,1,x\nb,9,1\n", **KEYS)
    batches = read(source, limit=3)
    assert counts(batches) == (3, 1, 0, 0, 2)
    assert marks(batches) == [("a", "enter", 1)]
    assert not any(batch.is_end for batch in batches)


def test_limit_of_all_rows_is_no_end_and_the_next_run_ends(make: Make, read: Read) -> None:
    source = make("d,t\na,1\nb,2\n")
    batches = read(source, limit=2)
    assert not any(batch.is_end for batch in batches)
    (rest,) = read(source, offsets={0: batches[-1].offset})
    assert (rest.is_end, len(rest.events)) == (True, 0)


def test_limit_counts_rows_but_not_ends(make: Make, read: Read) -> None:
    (batch,) = read(make("d,t\na,1\na,2"))
    grown = make("d,t\n" + "".join(f"a,{t}\n" for t in (1, 2, 3, 4, 5, 6)))
    batches = read(grown, offsets={0: batch.offset}, limit=2)
    assert [event.event_time_ms for event in events(batches)] == [3, 4]


def test_drain_returns_rows_read_but_not_what_waits(make: Make) -> None:
    source = make("d,t,n\n" + "a,1,500\n" * 60 + "b,2,900\n" * 60, **KEYS)
    reader = source.open({}, 2, 50)
    read_events = events(reader.read())
    drained = events(reader.drain())
    assert (reader.is_done, list(reader.drain())) == (True, [])
    reader.close()
    assert len(read_events) == 50
    assert not any(event.kind == "page_exit" for event in read_events + drained)


def test_file_that_became_shorter_is_refused(make: Make, read: Read) -> None:
    (batch,) = read(make("d,t\na,1\nb,2\n"))
    with pytest.raises(SourceChangedError, match="ends after row 1"):
        read(make("d,t\na,1\n"), offsets={0: batch.offset})


def test_file_that_gives_fewer_events_than_before_is_refused(make: Make, read: Read) -> None:
    batches = read(make("d,t,n\na,1,0\nb,2,0\nc,3,0\n", **KEYS), batch_events=1)
    source = make("d,t,n\na,1,x\nb,2,x\nc,3,0\nd,4,0\n", **KEYS)
    with pytest.raises(SourceChangedError, match="differs in its first 3 rows"):
        read(source, offsets={0: batches[4].offset})


def test_damaged_gzip_gives_the_rows_before_it_and_then_fails(make: Make) -> None:
    data = gzip.compress(b"d,t\n" + b"".join(b"a%d,%d\n" % (n, n) for n in range(200_000)))
    reader = make(data[: len(data) // 2]).open({}, 1, 1_000_000)
    found: list[Event] = []
    while batches := reader.read():
        found += events(batches)
        if len(batches) == 1 and batches[0].counts.source_rows % FLUSH_ROWS:
            break  # the partly filled batch before the damage
    with pytest.raises(SourceError, match="cannot be read after row"):
        reader.read()
    assert len(found) > 50_000
    assert not reader.is_done
    with pytest.raises(SourceError):
        reader.read()
    assert list(reader.drain()) == []
    reader.close()


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ({0: b'{"v":2,"step":9}', 1: b'{"v":2,"step":4,"ends":[3]}'}, "not of the same source"),
        (
            {0: b'{"v":2,"step":9,"ends":[2]}', 1: b'{"v":2,"step":4,"ends":[3]}'},
            "not of the same source",
        ),
    ],
)
def test_offset_that_is_not_of_this_source_is_refused(
    make: Make, offsets: dict[int, bytes], reason: str
) -> None:
    with pytest.raises(SourceError) as caught:
        make("d,t\na,1\n").open(offsets, 2, 10)
    assert reason in str(caught.value)


def test_name_of_the_file_is_in_the_origin_wherever_it_lies(
    make: Make, read: Read, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    batches = read(make("d,t\nx\n", path=tmp_path / "deep" / "log.csv"))
    assert letters(batches)[0].origin == "log.csv:2"


def test_dates_optional_parts_and_missing_lists_of_an_ordinary_log(make: Make, read: Read) -> None:
    rows = [
        '{"when":"2026-01-01T10:00:00Z","user":{"id":"a","tags":["x","y"]},"lines":["p","q"]}',
        '{"when":"2026-01-01T11:00:01.5+01:00","user":{"id":"a"}}',
        '{"when":"2026-01-01 10:00:02","user":null,"lines":null}',
        '{"when":"yesterday","user":{"id":"a"}}',
    ]
    tag = "get(get(user, 'tags'), -1, 'none')"
    event = {"kind": "click", "page": "'p'", "contents": {"tag": tag}}
    repeated = {**event, "each": {"name": "line", "in": "get('lines')"}, "id": "line"}
    source = make(
        "\n".join(rows),
        format="jsonl",
        device="get(user, 'id', 'nobody')",
        time="timestamp(when)",
        events=[event, repeated],
    )
    batches = read(source)
    start = 1_767_261_600_000
    found = [
        (e.device_id, e.event_time_ms - start, e.id, e.contents["tag"]) for e in events(batches)
    ]
    assert sorted(found) == [
        ("a", 0, "click", "y"),
        ("a", 0, "p", "y"),
        ("a", 0, "q", "y"),
        ("a", 1_500, "click", "none"),
        ("nobody", 2_000, "click", "none"),
    ]
    (letter,) = letters(batches)
    assert letter.reason.startswith("time: 'yesterday' is no ISO 8601 date and time")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d,t\na,1\na,2\na,3", "d,t\na,1\na,2\na,30\n"),
        ("d,t\na,1\na,2\na", "d,t\na,1\na,2\na,3\n"),
        ("d,t\na,1\nb,x\nc,3\n", "d,t\na,1\nb,2\nc,3\nd,4\n"),
    ],
    ids=["longer", "completed", "repaired"],
)
def test_rows_that_were_read_must_stay_as_they_are(
    make: Make, read: Read, before: str, after: str
) -> None:
    batches = read(make(before, order={"scope": "global"}))
    offsets = {batch.partition: batch.offset for batch in batches}
    changed = make(after, order={"scope": "global"})
    with pytest.raises(SourceChangedError, match=r"differs in its first \d rows"):
        read(changed, offsets=offsets)
