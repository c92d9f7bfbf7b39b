from walle_stream.vm.guest.events import EventList
from walle_stream.vm.guest.page import Page

ROWS = [
    ("page_enter", "page_enter", 100, 1_000, {"item": "v1", "entry": "tab:1"}),
    ("like", "click", 110, 1_001, {"item": "v1", "widget": "like"}),
    ("page_scroll", "page_scroll", 120, 1_002, None),
    ("click", "click", 130, 1_003, {"item": "v2", "widget": "share"}),
    ("page_exit", "page_exit", 140, 1_004, {"stay_ms": 7}),
]


def make(cause: str = "exit", enter_ms: int | None = 100) -> Page:
    return Page(("video", "v1@100", cause, enter_ms, None, ROWS))


def test_an_event_shows_its_row() -> None:
    event = make().events[1]
    assert (event.id, event.kind, event.event_time_ms, event.ingest_time_ms) == ROWS[1][:4]
    assert (event.page_id, event.page_instance) == ("video", "v1@100")
    assert (event.item, event.widget, event.contents) == ("v1", "like", ROWS[1][4])
    assert (event["item"], event.get("item"), event.get("none", 3)) == ("v1", "v1", 3)
    assert "item" in event
    assert "none" not in event


def test_an_event_without_contents_reads_as_empty() -> None:
    event = make().events[2]
    assert (event.item, event.widget, event.contents, event.get("x", 1)) == (None, None, {}, 1)
    assert "x" not in event


def test_a_left_page_is_complete_and_has_its_times() -> None:
    page = make()
    assert (page.page_id, page.instance, page.cause) == ("video", "v1@100", "exit")
    assert (page.enter_time_ms, page.exit_time_ms, page.dwell_ms) == (100, 140, 40)
    assert page.is_complete
    assert page.trigger.kind == "page_exit"
    assert len(page.events) == 5


def test_a_page_closed_without_exit_is_complete_with_its_cause() -> None:
    for cause in ("timeout", "reenter", "overflow"):
        assert make(cause).is_complete
        assert make(cause).dwell_ms == 40


def test_an_open_or_never_entered_page_is_not_complete() -> None:
    for page in (make("open"), make("none", None)):
        assert not page.is_complete
        assert (page.exit_time_ms, page.dwell_ms) == (None, None)


def test_key_by_groups_by_property_field_and_function() -> None:
    page = make()
    assert {kind: len(events) for kind, events in page.key_by("kind").items()} == {
        "page_enter": 1,
        "click": 2,
        "page_scroll": 1,
        "page_exit": 1,
    }
    assert list(page.key_by("item")) == ["v1", None, "v2"]
    assert list(page.key_by(lambda event: event.event_time_ms >= 130)) == [False, True]


def test_time_window_is_half_open() -> None:
    window = make().time_window(110, 130)
    assert [event.event_time_ms for event in window] == [110, 120]


def test_filter_keeps_what_meets_every_condition() -> None:
    page = make()
    assert len(page.filter(kind="click")) == 2
    assert len(page.filter(kind=("click", "page_exit"))) == 3
    assert [event.item for event in page.filter(kind="click", widget="share")] == ["v2"]
    assert [event.id for event in page.filter(id="like")] == ["like"]
    assert len(page.filter(where=lambda event: event.event_time_ms > 110)) == 3
    assert len(page.filter(nothing=None)) == 0
    assert len(page.filter()) == 5


def test_operators_chain_and_slices_keep_them() -> None:
    events = make().events
    assert isinstance(events[1:3], EventList)
    assert events[1:].filter(kind="click").map(lambda event: event.widget) == ["like", "share"]
    assert make().map(lambda event: event.kind)[0] == "page_enter"
