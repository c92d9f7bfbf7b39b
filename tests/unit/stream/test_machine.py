"""The machine's outputs depend on the order of events alone."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.events import Event
from walle_stream.stream.commands import RunTask, StreamCounts
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.pages import plain_page
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.snapshots import DeviceSnapshot
from walle_stream.stream.task_sets import DEFAULT_SET, SetDefinition
from walle_stream.testing.core_suite import MemoryRows, replayed
from walle_stream.wire.event_batch import EventBatch, RefusedRow
from walle_stream.wire.journal import encode_batch

TRIGGERS = {"visit": [["page_exit"]], "funnel": [["page_enter", "click"]]}


class EveryId(set[str]):
    """Makes every event matter."""

    def __contains__(self, _):
        return True


class How(NamedTuple):
    """How events are run."""

    keep: int = 10**9
    is_reopened: bool = False
    horizon: int = 0
    policy: SequencePolicy = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
    make: Callable[..., PartitionMachine] = PartitionMachine
    told: list[tuple[StreamCounts, list[RefusedRow]]] | None = None


def make_eager(find_set):
    machine = PartitionMachine(find_set)
    trie = machine._sets[DEFAULT_SET].trie
    trie.ids = EveryId(trie.ids)
    return machine


def reopen(rows, definition, watermark):
    replayed(rows, lambda _: definition)
    machine = PartitionMachine(lambda _: definition)
    for device_id, deadline in sorted(rows.deadlines.items()):
        machine.arm(device_id, deadline)
    machine.watermark_ms = watermark
    return machine


def take(machine, rows, events, *, is_end=False):
    batch = EventBatch(list(events))
    rows.wake(machine, machine.absent(batch, is_end=is_end))
    return batch, machine.take(batch, is_end=is_end)


def runs_of(woken):
    return [
        RunTask(device_id, task, *given, program)
        for (task, program), by_device in woken.runs.items()
        for device_id, own in by_device.items()
        for given in own
    ]


def run(events, cuts, **given):
    keep, is_reopened, horizon, policy, make, told = How(**given)
    rows, seen, definition = MemoryRows(), [], SetDefinition(TRIGGERS, policy)
    machine = make(lambda _: definition)
    bounds = [0, *sorted(cuts), len(events)]
    for number, (start, end) in enumerate(pairwise(bounds), 1):
        is_end, before = number == len(bounds) - 1, machine.watermark_ms
        machine.number = number
        batch, woken = take(machine, rows, events[start:end], is_end=is_end)
        numbered = machine.complete(
            [(each, [plain_page(each.page), each.clock_ms]) for each in runs_of(woken)]
        )
        seen += [(r.device_id, n, r.task, r.position, emit) for r, n, emit in numbered]
        if told is not None:
            told.append((machine.counts, woken.refused))
        numbers = machine.numbers()
        rows.batches[number] = encode_batch([batch.encoded], before, is_end=is_end, numbers=numbers)
        gone = machine.excess(keep)
        rows.put(machine.delta(number - horizon, gone))
        oldest = machine.oldest_dirty
        rows.drop_batches(oldest)
        machine.mark_committed()
        machine.passivate(gone)
        if is_reopened:
            machine = reopen(rows, definition, machine.watermark_ms)
    rows.put(machine.delta())
    devices = {
        name: msgspec.to_builtins(DeviceSnapshot.decoded(row))[:6]
        for name, row in rows.devices.items()
    }
    pages = {name: own for name, own in rows.pages.items() if own}
    return sorted(seen, key=lambda row: row[:2]), devices, pages


def make_events(seed, count=120, lags=(0, 0, 0, 2, 9), steps=(0, 0, 1, 3, 40)):
    rng, now = random.Random(seed), 1_000
    kinds = ["page_enter", "page_exit", "click", "exposure", "page_scroll", "page_scroll"]
    events = []
    for _ in range(count):
        now += rng.choice(steps)
        kind = rng.choice(kinds)
        events.append(
            Event(
                rng.choice("abcdefgh"),
                kind,
                kind,
                rng.choice(["p", "q"]),
                rng.choice(["", "1", "2"]),
                now - rng.choice(lags),
                now,
                {"item": str(rng.randrange(3))},
                rng.choice(["", "", f"u{rng.randrange(40)}"]),
            )
        )
    return events


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 120), max_size=12),
    st.sampled_from([0, 2]),
    st.sampled_from([0, 1, 4, 99]),
)
def test_cuts_passivation_and_deaths_change_nothing(seed, cuts, keep, horizon):
    events = make_events(seed)
    whole = run(events, [])
    assert run(events, cuts, keep=keep, horizon=horizon) == whole
    assert run(events, cuts, is_reopened=True, horizon=horizon) == whole
    assert run(events, cuts, keep=keep, is_reopened=True, horizon=horizon) == whole


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 120), max_size=6),
    st.builds(
        SequencePolicy,
        page_timeout_ms=st.sampled_from((None, 2, 50, 300)),
        out_of_order_ms=st.sampled_from((0, 0, 3, 60)),
        page_max_events=st.sampled_from((1, 3, 7, 10_000)),
        fields=st.sampled_from((None, frozenset({"item"}), frozenset())),
    ),
    st.sampled_from(((0,), (0, 0, 0, 2, 9), (0,) * 30 + (4,))),
    st.sampled_from(((0, 1), (0, 0, 1, 3, 40))),
)
def test_events_that_no_trigger_names_change_nothing(seed, cuts, policy, lags, steps):
    events = make_events(seed, lags=lags, steps=steps)
    expected, told, told_after_deaths = [], [], []
    whole = run(events, cuts, policy=policy, make=make_eager, told=expected)
    assert run(events, [], policy=policy) == whole
    assert run(events, cuts, policy=policy, horizon=3, told=told) == whole
    assert told == expected
    again = run(
        events, cuts, policy=policy, keep=2, is_reopened=True, horizon=2, told=told_after_deaths
    )
    assert again == whole
    assert told_after_deaths == expected


def test_sequence_numbers_are_contiguous_per_device_in_the_order_of_positions():
    found, _, _ = run(make_events(3), [10, 50])
    for device in "abcdefgh":
        own = [row for row in found if row[0] == device]
        assert [row[1] for row in own] == list(range(1, len(own) + 1))
        assert [row[3] for row in own] == sorted(row[3] for row in own)


def test_the_end_of_the_source_closes_open_pages():
    events = [Event("a", "page_enter", "page_enter", "p", "1", 5, 5)]
    found, _, rows = run(events, [])
    [(task, page)] = [(row[2], row[4]) for row in found if row[1] == 1]
    assert (task, page[2]) == ("visit", "timeout")
    assert not rows


def test_a_device_never_seen_is_counted_once():
    machine = PartitionMachine(lambda _: SetDefinition(TRIGGERS, SequencePolicy()))
    events = [Event("a", "click", "click", "p", "", n, n) for n in range(3)]
    assert machine.absent(EventBatch(events)) == ["a"]
    _, woken = take(machine, MemoryRows(), events)
    assert (machine.counts.devices, machine.counts.events, woken.events) == (1, 3, 3)


def test_a_run_over_an_open_page_is_given_the_pages_own_rows_and_how_many_it_sees():
    events = [Event("d", "page_enter", "page_enter", "p", "1", 0, 0)]
    events += [Event("d", "click", "click", "p", "1", n, n, {"item": n}) for n in range(1, 5)]
    machine = PartitionMachine(lambda _: SetDefinition({"t": [["click"]]}, SequencePolicy()))
    _, woken = take(machine, MemoryRows(), events)
    pages = [run.page for run in runs_of(woken)]
    assert [page[1] for page in pages] == [2, 3, 4, 5]
    assert all(page[0] is pages[0][0] for page in pages)
    shown = [[row[2] for row in plain_page(page)[5]] for page in pages]
    assert shown == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
