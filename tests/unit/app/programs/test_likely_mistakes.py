"""Names that no event has, and times in another unit, are warnings with a place."""

from types import SimpleNamespace

import pytest

from walle_stream.app.programs.likely_mistakes import FIRST_ROWS, FirstRows, LikelyMistakes
from walle_stream.events import Event
from walle_stream.ports import DeclaredIds, EventBatch, SourceBatch, SourceCounts

NOW_MS = 1_700_000_000_000
CLOSED = DeclaredIds(
    frozenset({"view", "cart"}), frozenset({"shop"}), has_other_ids=False, has_other_pages=False
)
OPEN_PAGES = DeclaredIds(frozenset({"click", "page_exit"}), has_other_ids=False)
PLACES = {("t", "x"): "p.yaml:9:18", ("", "time"): "p.yaml:7:11"}


def mistakes(*ids, declared=None, pages=None):
    task = SimpleNamespace(name="t", triggers=(ids,), pages=pages)
    return LikelyMistakes([task], SimpleNamespace(declared=declared), PLACES)


def event(id_="click", page="home", time_ms=NOW_MS):
    return Event("d", id_, "click", page, "", time_ms, time_ms)


@pytest.mark.parametrize(
    ("declared", "id_", "expected"),
    [
        (CLOSED, "view", ""),
        (CLOSED, "shop", ""),
        (CLOSED, "page_exit", ""),  # of a page that times out
        (CLOSED, "viewed", "did you mean 'view'?"),
        (CLOSED, "click", "allowed are cart, page_exit, shop, view"),
        (OPEN_PAGES, "page_exti", "did you mean 'page_exit'?"),
        (OPEN_PAGES, "exit", "did you mean 'page_exit'?"),
        (OPEN_PAGES, "product", ""),  # may be a page
        (None, "page_entre", "did you mean 'page_enter'?"),
        (None, "purchase", ""),
    ],
)
def test_a_trigger_id_that_cannot_be_is_named_with_what_is_near(declared, id_, expected):
    found = mistakes(id_, declared=declared).warnings()
    assert len(found) == bool(expected)
    assert not found or (repr(id_) in found[0] and found[0].endswith(expected))


def test_what_was_seen_is_known_and_suggested():
    looked = mistakes("purchse", "checkout", "hme")
    looked.look(EventBatch([event("purchase"), event("checkout"), event(page="hme")]))
    (line,) = looked.warnings()
    assert "'purchse'" in line
    assert "'purchase'" in line


def test_names_that_differ_in_digits_alone_are_two_names():
    looked = mistakes("experiment-2")
    looked.look(EventBatch([event("experiment-1")]))
    assert looked.warnings() == []


def test_pages_are_held_against_pages():
    (line,) = mistakes("view", declared=CLOSED, pages=("shopp", "shop")).warnings()
    assert "'shopp'" in line


def test_a_warning_begins_with_its_place():
    assert mistakes("x", declared=CLOSED).warnings()[0].startswith("p.yaml:9:18: task 't': ")


@pytest.mark.parametrize(
    ("time_ms", "unit"),
    [
        (NOW_MS, ""),
        (NOW_MS // 1000, "seconds"),
        (NOW_MS * 1000, "microseconds"),
        (5_000, ""),  # a clock that begins with the test
    ],
)
def test_times_in_another_unit_are_named(time_ms, unit):
    looked = mistakes("click")
    looked.look(EventBatch([event(time_ms=time_ms), event(time_ms=time_ms), event()]))
    found = looked.warnings()
    assert len(found) == bool(unit)
    assert not found or found[0].startswith(
        f"p.yaml:7:11: spec.source: times must be milliseconds, but {time_ms} looks like {unit}"
    )


class Reader:
    """Gives batches of some rows, for ever or to an end."""

    def __init__(self, rows, last, partitions=1):
        self.rows, self.left, self.batch_events, self.keeps_raw = rows, last, 7, False
        self.partitions = partitions

    @property
    def is_done(self):
        return self.left == 0

    def read(self):
        self.left -= 1
        counts = SourceCounts(source_rows=self.rows, accepted_rows=self.rows)
        return [
            SourceBatch(number, EventBatch([event("page_exti")]), b"", counts, [])
            for number in range(self.partitions)
        ]


def test_a_run_is_warned_once_after_its_first_rows():
    lines = []
    reader = FirstRows(Reader(FIRST_ROWS // 2, 9), mistakes("clik"), lines.append)
    reader.read()
    assert lines == []
    for _ in range(4):
        reader.read()
    assert len(lines) == 1
    reader.batch_events = 3
    assert (reader.batch_events, reader.is_done) == (3, False)


def test_a_read_of_many_partitions_may_have_more_than_the_first_rows():
    lines = []
    reader = FirstRows(Reader(FIRST_ROWS, 9, partitions=3), mistakes("clik"), lines.append)
    assert len(reader.read()) == 3
    assert len(lines) == 1


def test_a_short_source_is_judged_at_its_end():
    lines = []
    FirstRows(Reader(1, 1), mistakes("clik"), lines.append).read()
    assert len(lines) == 1
