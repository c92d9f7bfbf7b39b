"""Which record of the source a run or an event is of."""

from walle_stream.actors.dead_letters import set_large_numbers_aside
from walle_stream.actors.places import Places, origin_of
from walle_stream.events import Event
from walle_stream.ports import Origins, SourceBatch, SourceCounts
from walle_stream.stream.commands import RunTask
from walle_stream.wire.journal import encode_events


def event(device, time_ms, **contents):
    return Event(device, "page_exit", "page_exit", "p", "", time_ms, time_ms + 1, contents)


def run(device, clock_ms):
    return RunTask(device, "t", 1, clock_ms, None, "t")


def places(events, first_run=0, runs=3):
    made = Places()
    origins = Origins("raw[2]", [10 * n for n in range(len(events))])
    made.add(first_run, runs, encode_events(events), origins)
    return made


EVENTS = [event("a", 1), event("b", 1), event("a", 5), event("a", 7), event("c", 9)]


def test_a_run_is_of_the_event_that_woke_it():
    assert places(EVENTS).of_run(0, run("a", 5)) == "raw[2]@20"
    assert places(EVENTS).of_run(1, run("b", 1)) == "raw[2]@10"


def test_one_whose_event_came_before_is_of_the_devices_last_and_a_timer_s_of_the_last():
    assert places(EVENTS).of_run(0, run("a", 0)) == "raw[2]@30"
    assert places(EVENTS).of_run(0, run("timed out", 0)) == "raw[2]@40"


def test_where_no_event_came_with_it_a_run_is_of_the_last_record_before():
    made = places(EVENTS, runs=0)
    made.add(0, 1, encode_events([]), Origins("raw[2]", []))
    assert made.of_run(0, run("a", 5)) == made.last == "raw[2]@40"
    later = Places(made.last)
    later.add(0, 1, encode_events([]), Origins("raw[2]", []))
    assert later.of_run(0, run("a", 5)) == "raw[2]@40"


def test_a_run_of_another_batch_or_of_a_reply_is_of_none():
    assert not places(EVENTS, first_run=2, runs=1).of_run(1, run("a", 5))
    assert not places(EVENTS, first_run=2, runs=1).of_run(3, run("a", 5))
    assert places(EVENTS, first_run=2, runs=1).of_run(2, run("a", 5)) == "raw[2]@20"
    assert not Places().of_run(0, run("a", 5))


def test_an_event_is_of_its_record_or_of_its_device_and_time():
    assert origin_of(EVENTS[2], EVENTS, Origins("raw[2]", [1, 2, 3, 4, 5])) == "raw[2]@3"
    assert origin_of(EVENTS[2], EVENTS, None) == "a@6"


def test_records_that_are_set_aside_take_their_offsets_with_them():
    events = [event("a", 1), event("a", 2, big=2**70), event("a", 3)]
    batch = SourceBatch(2, events, b"", SourceCounts(accepted_rows=3), [])
    batch.origins = Origins("raw[2]", [4, 5, 6])
    assert [each.event_time_ms for each in set_large_numbers_aside(batch)] == [1, 3]
    assert batch.origins == ("raw[2]", [4, 6])
    assert [letter.origin for letter in batch.dead_letters] == ["raw[2]@5"]
    assert (batch.counts.accepted_rows, batch.counts.dead_letter_rows) == (2, 1)
