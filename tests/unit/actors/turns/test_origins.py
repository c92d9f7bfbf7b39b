"""The source record of a run or an event."""

import msgspec

from walle_stream.actors.turns.dead_letters import refused_dead_letter
from walle_stream.actors.turns.origins import RunOrigins
from walle_stream.events import Event
from walle_stream.ports import EventBatch, Origins, SourceBatch, SourceCounts
from walle_stream.stream.commands import RunTask

PAGE = ("p", "", "exit", None, None, [])


def event(device, time_ms, **contents):
    return Event(device, "page_exit", "page_exit", "p", "", time_ms, time_ms + 1, contents)


def run(device, clock_ms, position=1):
    return RunTask(device, "t", position, clock_ms, PAGE, "t")


def batch(events):
    origins = Origins("raw[2]", [10 * n for n in range(len(events))])
    return SourceBatch(2, EventBatch(events), b"", SourceCounts(), [], origins=origins)


def woken(*runs):
    found = {}
    for each in runs:
        found.setdefault(each.device_id, []).append((each.position, each.clock_ms, PAGE))
    return {("t", "t"): found} if found else {}


def places(*runs, events=None):
    made = RunOrigins()
    made.add(woken(*runs), batch(EVENTS if events is None else events))
    return made


def place_of(each):
    return places(each).of_run(each)


EVENTS = [event("a", 1), event("b", 1), event("a", 5), event("a", 7), event("c", 9)]


def test_a_run_is_of_the_event_that_woke_it():
    assert place_of(run("a", 5)) == "raw[2]@20"
    assert place_of(run("b", 1)) == "raw[2]@10"


def test_a_trace_is_that_of_the_record_that_woke_the_run():
    made, given = RunOrigins(), batch(EVENTS)
    assert not made.has_traces
    origins = given.origins._replace(traces={20: "of a"})
    made.add(woken(run("a", 5), run("b", 1)), msgspec.structs.replace(given, origins=origins))
    assert made.has_traces
    assert [made.trace_of(each) for each in (run("a", 5), run("b", 1), run("c", 0))] == [
        "of a",
        "",
        "",
    ]


def test_one_whose_event_came_before_is_of_the_devices_last_and_a_timer_s_of_the_last():
    assert place_of(run("a", 0)) == "raw[2]@30"
    assert place_of(run("timed out", 0)) == "raw[2]@40"


def test_where_no_event_came_with_it_a_run_is_of_the_last_record_before():
    made = places()
    made.add(woken(run("a", 5)), batch([]))
    assert made.of_run(run("a", 5)) == made.last == "raw[2]@40"
    later = RunOrigins(made.last)
    later.add(woken(run("a", 5)), batch([]))
    assert later.of_run(run("a", 5)) == "raw[2]@40"


def test_a_run_of_another_batch_or_of_a_reply_is_of_none():
    made = places(run("a", 5, 2))
    assert not made.of_run(run("a", 5, 1))
    assert not made.of_run(run("b", 5, 2))
    assert made.of_run(run("a", 5, 2)) == "raw[2]@20"
    assert not RunOrigins().of_run(run("a", 5))


def test_events_that_cannot_be_stored_are_set_aside_and_the_others_keep_their_places():
    given = batch([event("a", 1), event("a", 2, big=2**70), event("a", 3)])
    events = given.events
    assert [each.event_time_ms for each in events.events()] == [1, 3]
    [row] = events.refused
    assert refused_dead_letter(row, given.origins).origin == "raw[2]@10"
    assert refused_dead_letter(row, None).origin == "a@3"
    assert len(events) == 3
    made = RunOrigins()
    made.add(woken(run("a", 3)), given)
    events.let_go()
    assert made.of_run(run("a", 3)) == "raw[2]@20"
