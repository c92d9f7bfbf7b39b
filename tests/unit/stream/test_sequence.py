import msgspec
import pytest

from walle_stream.errors import StoreCorruptedError
from walle_stream.events import Event
from walle_stream.stream.sequence import DeviceSequence, SequencePolicy
from walle_stream.testing.oracles import RecordingSink

KINDS = {"in": "page_enter", "out": "page_exit", "tap": "click", "see": "exposure"}


def event(text, time_ms, ingest_ms=None, uid="", **contents):
    """``kind page/instance`` at a time."""
    kind, _, where = text.partition(" ")
    page_id, _, instance = where.partition("/")
    kind = KINDS[kind]
    ingest_ms = time_ms if ingest_ms is None else ingest_ms
    return Event("d1", kind, kind, page_id, instance, time_ms, ingest_ms, contents, uid)


class Device:
    """A device's sequence with its partition's watermark and its records."""

    def __init__(self, **policy):
        self.policy = SequencePolicy(**policy)
        self.sequence = DeviceSequence(self.policy, "d1")
        self.sink = RecordingSink()
        self.watermark_ms = -1
        self.stored = {}

    def take(self, *events):
        for each in events:
            self.watermark_ms = max(self.watermark_ms, each.ingest_time_ms)
            self.sequence.accept(each, self.watermark_ms, self.sink)
        return self

    def advance(self, watermark_ms):
        self.watermark_ms = watermark_ms
        self.sequence.advance(watermark_ms, self.sink)
        return self

    def finish(self):
        self.sequence.finish(self.sink)
        return self

    def commit(self):
        new_rows, closed = self.sequence.pages.take_changes()
        for ordinal, index, row in new_rows:
            assert len(self.stored.setdefault(ordinal, [])) == index
            self.stored[ordinal].append(row)
        for ordinal, count in closed:
            assert len(self.stored.pop(ordinal)) == count
        return new_rows, closed

    def rest(self):
        """Go to the store as bytes and come back."""
        self.commit()
        stored = msgspec.msgpack.encode((self.sequence.export(), list(self.stored.items())))
        exported, rows = msgspec.msgpack.decode(stored)
        rows = {ordinal: [tuple(row) for row in page] for ordinal, page in rows}
        self.sequence = DeviceSequence.restore(self.policy, exported, rows, "d1")
        return self

    @property
    def log(self):
        """Each record in short: ``exit video/1 @5 (timeout 3 rows)``."""
        lines = []
        for name, *given in self.sink.records:
            if name == "closed":
                lines.append(f"closed {given[0]}")
                continue
            each = given[0]
            short = next(short for short, kind in KINDS.items() if kind == each.kind)
            line = f"{short} {each.page_id}/{each.page_instance} @{each.event_time_ms}"
            if name != "event":
                line = f"{name} {line}"
            elif given[1] is not None:
                _, instance, ordinal, cause, _, rows = given[1]
                line += f" -> {instance}#{ordinal} {cause} {len(rows)}"
            lines.append(line)
        return lines

    @property
    def pages(self):
        """Closed pages as (instance, cause, kinds of their rows)."""
        return [
            (given[1][1], given[1][3], " ".join(row[1] for row in given[1][5]))
            for name, *given in self.sink.records
            if name == "event" and given[1] is not None and given[1][3] != "open"
        ]


# Pages


def test_events_from_enter_to_exit_are_one_page_sequence():
    device = Device().take(event("in v/1", 1), event("tap v/1", 2), event("out v/1", 3))
    assert device.log == [
        "in v/1 @1 -> 1#1 open 1",
        "tap v/1 @2 -> 1#1 open 2",
        "out v/1 @3 -> 1#1 exit 3",
        "closed exit",
    ]


def test_a_page_has_its_enter_time_and_ends_with_its_exit():
    device = Device().take(event("in v/1", 5, item="x"), event("out v/1", 9, stay=3))
    page = device.sink.records[1][2]
    assert page == (
        "v",
        "1",
        1,
        "exit",
        5,
        [
            ("page_enter", "page_enter", 5, 5, {"item": "x"}),
            ("page_exit", "page_exit", 9, 9, {"stay": 3}),
        ],
    )


def test_events_of_a_page_never_entered_belong_to_no_page():
    device = Device().take(event("see feed", 1), event("in v/1", 2), event("see feed", 3))
    assert device.log == ["see feed/ @1", "in v/1 @2 -> 1#1 open 1", "see feed/ @3"]


def test_nested_pages_keep_their_events_apart():
    device = Device().take(
        event("in list/1", 1),
        event("in item/2", 2),
        event("tap item/2", 3),
        event("out item/2", 4),
        event("tap list/1", 5),
        event("out list/1", 6),
    )
    assert device.pages == [
        ("2", "exit", "page_enter click page_exit"),
        ("1", "exit", "page_enter click page_exit"),
    ]


def test_interleaved_visits_of_one_page_keep_their_events_apart():
    device = Device().take(
        event("in v/1", 1),
        event("in v/2", 2),
        event("tap v/1", 3),
        event("out v/1", 4),
        event("see v/2", 5),
        event("out v/2", 6),
    )
    assert device.pages == [
        ("1", "exit", "page_enter click page_exit"),
        ("2", "exit", "page_enter exposure page_exit"),
    ]


def test_pages_are_numbered_in_the_order_of_their_enters():
    device = Device().take(event("in v/1", 1), event("in w/1", 2), event("out v/1", 3))
    device.take(event("in v/1", 4))
    assert [line.split("#")[1][0] for line in device.log if line.startswith("in")] == list("123")


@pytest.mark.parametrize("first", ["", "1"])
def test_an_event_without_instance_goes_to_the_latest_open_visit(first):
    device = Device().take(
        event(f"in v/{first}", 1),
        event("in v/2", 2),
        event("tap v", 3),
        event("out v", 4),
        event("tap v", 5),
        event("tap w", 6),
    )
    assert device.log[2:] == [
        "tap v/ @3 -> 2#2 open 2",
        "out v/ @4 -> 2#2 exit 3",
        "closed exit",
        f"tap v/ @5 -> {first}#1 open 2",
        "tap w/ @6",
    ]


def test_entering_an_open_visit_again_closes_it_first():
    device = Device().take(event("in v/1", 1), event("tap v/1", 2), event("in v/1", 7, 8))
    assert device.log[2:] == [
        "out v/1 @7 -> 1#1 reenter 3",
        "closed reenter",
        "in v/1 @7 -> 1#2 open 1",
    ]
    assert device.sink.records[2][1] == event("out v/1", 7, 8)


def test_a_reentered_page_is_the_latest_again():
    device = Device().take(event("in v/1", 1), event("in v/2", 2), event("in v/1", 3))
    assert device.take(event("tap v", 4)).log[-1] == "tap v/ @4 -> 1#3 open 2"


def test_an_exit_without_enter_is_counted_and_goes_on_without_page():
    device = Device().take(event("out v/1", 1))
    assert device.log == ["missing_enter out v/1 @1", "out v/1 @1"]


def test_a_second_exit_of_a_visit_is_one_without_enter():
    device = Device().take(event("in v/1", 1), event("out v/1", 2), event("out v/1", 3))
    assert device.log[3:] == ["missing_enter out v/1 @3", "out v/1 @3"]


def test_the_event_over_the_limit_closes_its_page_and_belongs_to_none():
    device = Device(page_max_events=2)
    device.take(event("in v/1", 1), event("tap v/1", 2), event("see v/1", 3), event("tap v/1", 4))
    assert device.log[2:] == [
        "out v/1 @3 -> 1#1 overflow 3",
        "closed overflow",
        "see v/1 @3",
        "tap v/1 @4",
    ]


def test_the_exit_of_a_full_page_is_natural():
    device = Device(page_max_events=2)
    device.take(event("in v/1", 1), event("tap v/1", 2), event("out v/1", 3))
    assert device.pages == [("1", "exit", "page_enter click page_exit")]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (None, {"item": "x", "price": 3}),
        (frozenset({"item", "widget"}), {"item": "x"}),
        (frozenset({"widget"}), None),
        (frozenset(), None),
    ],
)
def test_rows_keep_the_fields_that_tasks_read(fields, kept):
    device = Device(fields=fields).take(event("in v/1", 1, item="x", price=3))
    assert device.sink.records[0][2][5][0][4] == kept


# Time-outs


def test_a_missing_exit_is_made_by_the_timeout():
    device = Device(page_timeout_ms=100).take(event("in v/1", 5, 10), event("tap v/1", 7, 20))
    assert device.sequence.settle() == 120
    assert device.advance(119).log[2:] == []
    assert device.advance(500).log[2:] == ["out v/1 @7 -> 1#1 timeout 3", "closed timeout"]
    assert device.sink.records[2][1] == event("out v/1", 7, 120)
    assert device.sequence.settle() is None


def test_the_watermark_of_the_next_event_fires_timeouts_before_it():
    device = Device(page_timeout_ms=100).take(event("in v/1", 1), event("tap v/1", 101))
    assert device.log[1:] == ["out v/1 @1 -> 1#1 timeout 2", "closed timeout", "tap v/1 @101"]


def test_an_event_on_the_page_puts_its_timeout_off():
    device = Device(page_timeout_ms=100).take(event("in v/1", 1), event("tap v/1", 100))
    assert device.sequence.settle() == 200
    assert device.take(event("tap v/1", 199)).pages == []


def test_an_older_ingest_time_does_not_bring_the_timeout_forward():
    device = Device(page_timeout_ms=100).take(event("in v/1", 1, 50), event("tap v/1", 2, 40))
    assert device.sequence.settle() == 150


def test_timeouts_fire_by_deadline_then_in_the_order_of_enters():
    device = Device(page_timeout_ms=10)
    device.take(event("in a", 1, 5), event("in b", 2, 5), event("in c", 3, 3), event("tap a", 4, 7))
    device.advance(50)
    assert [line for line in device.log if "timeout " in line] == [
        "out c/ @3 -> #3 timeout 2",
        "out b/ @2 -> #2 timeout 2",
        "out a/ @4 -> #1 timeout 3",
    ]


def test_the_deadline_is_the_first_of_the_pages_still_open():
    device = Device(page_timeout_ms=10)
    device.take(event("in a", 1), event("in b", 2), event("in c", 3), event("out a", 4))
    assert device.sequence.settle() == 12
    device.take(event("tap b", 5))
    assert device.sequence.settle() == 13
    device.take(event("out b", 6), event("out c", 7))
    assert device.sequence.settle() is None


def test_without_a_timeout_pages_stay_open_at_the_end():
    device = Device().take(event("in v/1", 1)).finish()
    assert device.pages == []
    assert device.sequence.settle() is None


def test_the_end_fires_every_timer():
    device = Device(page_timeout_ms=100, out_of_order_ms=10)
    device.take(event("in v/1", 1), event("tap v/1", 5)).finish()
    assert device.pages == [("1", "timeout", "page_enter click page_exit")]
    assert device.sequence.settle() is None


def test_events_after_an_end_go_on():
    device = Device(page_timeout_ms=100, out_of_order_ms=10)
    device.take(event("in v/1", 1)).finish().take(event("see v/1", 3)).finish()
    assert device.log[-1] == "see v/1 @3"


# Order, late and duplicate events


def test_without_a_bound_an_older_event_is_late():
    device = Device().take(event("see p", 10), event("see p", 9), event("see p", 10))
    assert device.log == ["see p/ @10", "late see p/ @9", "see p/ @10"]


def test_within_the_bound_events_are_put_in_order():
    device = Device(out_of_order_ms=10)
    device.take(event("tap p", 5, 5), event("see p", 3, 6), event("out p", 13, 7))
    assert device.log == ["see p/ @3"]
    device.take(event("see q", 15, 8))
    assert device.log == ["see p/ @3", "tap p/ @5"]
    assert device.finish().log[2:] == ["missing_enter out p/ @13", "out p/ @13", "see q/ @15"]


def test_an_enter_that_arrives_after_its_exit_makes_a_page():
    device = Device(out_of_order_ms=10)
    device.take(event("out v/1", 8, 1), event("tap v/1", 6, 2), event("in v/1", 4, 3)).finish()
    assert device.pages == [("1", "exit", "page_enter click page_exit")]


def test_equal_times_keep_the_order_of_arrival():
    device = Device(out_of_order_ms=10)
    for number in "213":
        device.take(event(f"see p/{number}", 5))
    assert device.finish().log == ["see p/2 @5", "see p/1 @5", "see p/3 @5"]


def test_below_what_was_released_is_late():
    device = Device(out_of_order_ms=10).take(event("see p", 5), event("see p", 15))
    assert device.log == ["see p/ @5"]
    device.take(event("see p/late", 4, 15), event("see p/equal", 5, 15))
    assert device.log[1:] == ["late see p/late @4", "see p/equal @5"]


def test_an_event_older_than_the_bound_is_not_late_where_nothing_newer_left():
    device = Device(out_of_order_ms=10)
    device.take(event("see p", 0), event("see p", 100, 1), event("see p", 50, 2))
    assert device.log == ["see p/ @0", "see p/ @50"]


def test_held_events_leave_when_the_watermark_passes_their_bound():
    device = Device(out_of_order_ms=10).take(event("see p", 100, 7))
    assert device.sequence.settle() == 17
    assert device.advance(16).log == []
    assert device.advance(17).log == ["see p/ @100"]


def test_an_event_that_is_due_takes_those_before_it_along():
    device = Device(out_of_order_ms=10)
    device.take(event("see p/b", 8, 1), event("see p/a", 6, 9), event("see p/c", 8, 9))
    assert device.advance(11).log == ["see p/a @6", "see p/b @8"]
    assert device.sequence.settle() == 19


def test_at_one_deadline_held_events_come_before_pages():
    device = Device(out_of_order_ms=20, page_timeout_ms=10)
    device.take(event("in v/1", 0, 0), event("see p", 20, 10))
    assert device.log == ["in v/1 @0 -> 1#1 open 1"]
    device = Device(out_of_order_ms=20, page_timeout_ms=30)
    device.take(event("in v/1", 0, 0), event("see p", 20, 10)).advance(30)
    assert device.log[1:] == ["see p/ @20", "out v/1 @0 -> 1#1 timeout 2", "closed timeout"]


def test_a_uid_seen_within_the_bound_is_a_duplicate():
    device = Device(out_of_order_ms=10)
    device.take(event("see p", 5, uid="u"), event("see p", 6, uid="u"), event("see p", 7, uid="v"))
    assert device.log == ["duplicate see p/ @6"]


def test_without_a_uid_equal_events_are_no_duplicates():
    device = Device().take(event("see p", 5), event("see p", 5))
    assert device.log == ["see p/ @5", "see p/ @5"]


def test_without_a_bound_a_duplicate_of_the_same_time_is_found():
    device = Device().take(event("see p", 5, uid="u"), event("see p", 5, uid="u"))
    assert device.log == ["see p/ @5", "duplicate see p/ @5"]


def test_a_duplicate_from_before_the_bound_is_late():
    device = Device().take(
        event("see p", 5, uid="u"), event("see p", 6), event("see p", 5, uid="u")
    )
    assert device.log[2:] == ["late see p/ @5"]


def test_a_released_duplicate_within_the_bound_is_no_late_event():
    device = Device(out_of_order_ms=10)
    device.take(event("see p", 5, 5, uid="u"), event("see p", 9, 6)).advance(16)
    device.take(event("see p", 5, 16, uid="u"))
    assert device.log[2:] == ["duplicate see p/ @5"]


def test_a_duplicate_older_than_the_bound_that_would_not_be_late_is_found():
    device = Device(out_of_order_ms=10)
    device.take(event("see p", 0), event("see p", 100, 1), event("see p", 50, 2, uid="u"))
    device.take(event("see p", 101, 3, uid="v"), event("see p", 50, 4, uid="u"))
    assert device.log[2:] == ["duplicate see p/ @50"]


def test_a_late_event_leaves_no_uid():
    device = Device().take(
        event("see p", 5), event("see p", 4, uid="u"), event("see p", 5, uid="u")
    )
    assert device.log[1:] == ["late see p/ @4", "see p/ @5"]


def test_a_uid_far_behind_may_come_again_as_another_event():
    device = Device(out_of_order_ms=10)
    device.take(
        event("see p", 5, uid="u"), event("see p", 50, uid="v"), event("see p", 60, uid="u")
    )
    device.take(event("see p", 61, uid="w"), event("see p", 62, uid="u"))
    assert device.log[2:] == ["duplicate see p/ @62"]


def test_uids_and_held_events_are_bounded_by_the_order_bound():
    device = Device(out_of_order_ms=10)
    for time_ms in range(1_000):
        device.take(event("see p", time_ms, uid=f"u{time_ms}"))
    exported = device.sequence.export()
    assert len(exported[5]) <= 11
    assert len(exported[6]) <= 11


# Rest


def test_a_rested_device_goes_on_as_if_it_had_not():
    steps = [
        event("in v/1", 1, 1, uid="a"),
        event("tap v/1", 3, 2, item="x"),
        event("see v/1", 2, 3, uid="b"),
        event("see v/1", 2, 4, uid="b"),
        event("in v/2", 12, 14),
        event("out v", 30, 16),
    ]
    policy = {"page_timeout_ms": 100, "out_of_order_ms": 10}
    awake, resting = Device(**policy), Device(**policy)
    for step in steps:
        awake.take(step)
        resting.take(step).rest()
        assert resting.sequence.export() == awake.sequence.export()
        assert resting.sequence.settle() == awake.sequence.settle()
    assert resting.finish().sink.records == awake.finish().sink.records
    assert "timeout" in str(awake.pages)


def test_only_new_rows_are_handed_to_the_store():
    device = Device().take(event("in v/1", 1), event("tap v/1", 2))
    assert [row[:2] for row in device.commit()[0]] == [(1, 0), (1, 1)]
    assert device.commit() == ([], [])
    device.take(event("in w/1", 3), event("see v/1", 4))
    assert [row[:2] for row in device.commit()[0]] == [(1, 2), (2, 0)]


def test_the_store_forgets_the_rows_of_closed_pages():
    device = Device().take(event("in v/1", 1), event("tap v/1", 2))
    device.commit()
    device.take(event("out v/1", 3))
    assert device.commit() == ([], [(1, 2)])
    assert device.stored == {}


def test_a_page_that_opens_and_closes_between_commits_leaves_no_trace():
    device = Device().take(event("in v/1", 1), event("out v/1", 2))
    assert device.commit() == ([], [])


def test_a_page_without_stored_rows_is_corruption():
    exported = Device().take(event("in v/1", 1)).sequence.export()
    with pytest.raises(StoreCorruptedError, match=r"device 'd1'.*'v'/'1'.*restore the data"):
        DeviceSequence.restore(SequencePolicy(), exported, {}, "d1")


def test_events_held_under_a_larger_bound_are_not_lost():
    held = Device(out_of_order_ms=50).take(event("see p", 5))
    device = Device()
    device.sequence = DeviceSequence.restore(device.policy, held.sequence.export(), {}, "d1")
    assert device.take(event("see p", 6)).log == ["see p/ @5", "see p/ @6"]
