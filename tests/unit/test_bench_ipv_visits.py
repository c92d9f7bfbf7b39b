"""The cloud-only baseline beside ``bench/ipv.py``: pages as its tables keep them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from ipv_parts.visits import DeviceVisits, RawEvent, VisitPolicy

POLICY = VisitPolicy(page_timeout_ms=1_000, page_max_events=5)


def event(kind, time_ms, instance="1", page="item", uid="", **contents):
    return RawEvent(kind, page, time_ms, "", instance, contents, uid)


def ended(*events, policy=POLICY):
    """Feed events; a pair gives the record's time as well."""
    visits, found = DeviceVisits(), []
    for each in events:
        given, ingest_ms = each if isinstance(each, tuple) else (each, each.event_time_ms)
        found += visits.accept(given, ingest_ms, policy)
    return [(each.instance, each.cause, [row[2] for row in each.rows]) for each in found]


def test_the_exit_ends_the_page_at_once():
    assert ended(event("page_enter", 1), event("click", 2), event("page_exit", 3)) == [
        ("1", "exit", [1, 2, 3])
    ]


def test_pages_may_nest_and_interleave():
    assert ended(
        event("page_enter", 1),
        event("page_enter", 2, "2"),
        event("click", 3),
        event("page_exit", 4),
        event("click", 5, "2"),
        event("page_exit", 6, "2"),
    ) == [("1", "exit", [1, 3, 4]), ("2", "exit", [2, 5, 6])]


def test_a_late_event_is_put_in_its_place_while_its_page_is_open():
    assert ended(
        event("page_enter", 1), event("click", 5), event("click", 3), event("page_exit", 6)
    ) == [("1", "exit", [1, 3, 5, 6])]


def test_what_comes_after_the_exit_or_from_before_the_enter_is_dropped():
    assert ended(
        event("page_enter", 5), event("click", 4), event("page_exit", 6), event("click", 5)
    ) == [("1", "exit", [5, 6])]


def test_an_event_that_comes_twice_counts_once():
    assert ended(
        event("page_enter", 1, uid="a"),
        event("page_enter", 1, uid="a"),
        event("click", 2, uid="b"),
        event("click", 2, uid="b"),
        event("page_exit", 3, uid="c"),
        event("page_exit", 3, uid="c"),
    ) == [("1", "exit", [1, 2, 3])]


def test_an_event_without_a_visit_belongs_to_the_latest_open_page():
    assert ended(
        event("page_enter", 1, "1"),
        event("page_enter", 2, "2"),
        event("click", 3, ""),
        event("page_exit", 4, ""),
    ) == [("2", "exit", [2, 3, 4])]


def test_a_page_that_is_entered_again_has_ended():
    assert ended(event("page_enter", 1), event("page_enter", 4), event("page_exit", 5)) == [
        ("1", "reenter", [1, 4]),
        ("1", "exit", [4, 5]),
    ]


def test_a_page_times_out_with_the_devices_next_event():
    assert ended(event("page_enter", 1), (event("page_enter", 9, "2"), 1_001)) == [
        ("1", "timeout", [1, 1])
    ]


def test_a_page_with_too_many_events_ends():
    clicks = [event("click", time_ms) for time_ms in range(2, 8)]
    assert ended(event("page_enter", 1), *clicks) == [("1", "overflow", [1, 2, 3, 4, 5, 6])]


def test_other_pages_and_contents_are_not_kept():
    policy = VisitPolicy(1_000, 5, frozenset({"item"}), frozenset({"a"}))
    visits = DeviceVisits()
    visits.accept(event("page_enter", 1, page="home"), 1, policy)
    visits.accept(event("page_enter", 1, a=1, b=2), 1, policy)
    assert [each.rows for each in visits.visits] == [[("page_enter", "page_enter", 1, 1, {"a": 1})]]


@pytest.mark.parametrize("kind", ["click", "page_exit"])
def test_an_event_of_a_page_that_was_never_entered_is_dropped(kind):
    assert ended(event(kind, 1)) == []
