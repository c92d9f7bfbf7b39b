"""The machine's outputs depend on the order of events alone."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.events import Event
from walle_stream.stream.commands import StreamCounts
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.pages import plain_page
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.snapshots import DeviceSnapshot

TRIGGERS = {"visit": [["page_exit"]], "funnel": [["page_enter", "click"]]}


class Store:
    """What a partition's database would hold, in memory and through bytes."""

    def __init__(self, horizon):
        self.devices, self.rows, self.deadlines = {}, {}, {}
        self.journal, self.horizon = {}, horizon

    def commit(self, machine, batch, watermark, *, is_end):
        self.journal[machine.number] = (batch, watermark, is_end, machine.numbers())

    def put(self, deltas):
        for delta in deltas:
            self.devices[delta.device_id] = msgspec.msgpack.encode(delta.snapshot)
            rows = self.rows.setdefault(delta.device_id, {})
            for ordinal, index, row in delta.new_rows:
                rows.setdefault(ordinal, {})[index] = row
            for ordinal, count in delta.closed_pages:
                assert len(rows.pop(ordinal)) == count
            if delta.snapshot.deadline_ms is None:
                self.deadlines.pop(delta.device_id, None)
            else:
                self.deadlines[delta.device_id] = delta.snapshot.deadline_ms

    def trim(self, machine):
        oldest = machine.oldest_dirty
        for number in list(self.journal):
            if oldest is None or number < oldest:
                del self.journal[number]

    def load(self, machine, device_id):
        found = self.devices.get(device_id)
        snapshot = None if found is None else msgspec.msgpack.decode(found, type=DeviceSnapshot)
        rows = {
            ordinal: [by_index[index] for index in sorted(by_index)]
            for ordinal, by_index in self.rows.get(device_id, {}).items()
        }
        machine.activate(device_id, snapshot, rows)
        return 0 if snapshot is None else snapshot.as_of

    def open(self, policy, watermark):
        machine = PartitionMachine(TRIGGERS, policy)
        for device_id, deadline in self.deadlines.items():
            machine.arm(device_id, deadline)
        ahead = {}
        for number, (batch, watermark_before, is_end, numbers) in self.journal.items():
            machine.number, machine.watermark_ms = number, watermark_before
            for device_id in machine.absent(batch, is_end=is_end):
                ahead[device_id] = self.load(machine, device_id)
            skipping = {name for name, last in ahead.items() if last >= number}
            machine.handle(batch, is_end=is_end, skipping=skipping)
            for name, *found in numbers:
                if not machine.is_active(name):
                    ahead[name] = self.load(machine, name)
                if ahead.get(name, 0) < number:
                    machine.set_numbers(name, *found)
            machine.mark_committed()
        machine.watermark_ms = watermark
        return machine


class EveryId(dict[str, int]):
    """Makes every event matter."""

    def __contains__(self, _):
        return True


class How(NamedTuple):
    """How events are run."""

    keep: int = 10**9
    reopen: bool = False
    horizon: int = 0
    policy: SequencePolicy = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
    make: Callable[..., PartitionMachine] = PartitionMachine
    told: list[tuple[StreamCounts, list[Event]]] | None = None


def make_eager(triggers, policy):
    machine = PartitionMachine(triggers, policy)
    machine.trie.ids = EveryId(machine.trie.ids)
    return machine


def run(events, cuts, **given):
    keep, reopen, horizon, policy, make, told = How(**given)
    store, seen = Store(horizon), []
    machine = make(TRIGGERS, policy)
    bounds = [0, *sorted(cuts), len(events)]
    for number, (start, end) in enumerate(pairwise(bounds), 1):
        is_end = number == len(bounds) - 1
        batch, before = events[start:end], machine.watermark_ms
        machine.number = number
        for device_id in machine.absent(batch, is_end=is_end):
            store.load(machine, device_id)
        runs = machine.handle(batch, is_end=is_end)
        numbered = machine.complete(
            [(each, [plain_page(each.page), each.clock_ms]) for each in runs]
        )
        seen += [(r.device_id, n, r.task, r.position, emit) for r, n, emit in numbered]
        if told is not None:
            told.append((machine.counts, machine.late_events))
        store.commit(machine, batch, before, is_end=is_end)
        gone = machine.excess(keep)
        store.put(machine.delta(number - horizon, gone))
        store.trim(machine)
        machine.mark_committed()
        machine.passivate(gone)
        if reopen:
            machine = store.open(policy, machine.watermark_ms)
    store.put(machine.delta())
    for name, row in store.devices.items():
        store.devices[name] = msgspec.msgpack.decode(row)[:6]
    return sorted(seen, key=lambda row: row[:2]), store.devices, store.rows


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
    assert run(events, cuts, reopen=True, horizon=horizon) == whole
    assert run(events, cuts, keep=keep, reopen=True, horizon=horizon) == whole


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
    again = run(events, cuts, policy=policy, keep=2, reopen=True, horizon=2, told=told_after_deaths)
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
    assert not any(rows.values())


def test_a_device_never_seen_is_counted_once():
    machine = PartitionMachine(TRIGGERS, SequencePolicy())
    events = [Event("a", "click", "click", "p", "", n, n) for n in range(3)]
    assert machine.absent(events) == ["a"]
    machine.activate("a", None, {})
    machine.handle(events)
    assert machine.counts.new_devices == 1
    assert machine.counts.events == pytest.approx(3)


def test_a_run_over_an_open_page_is_given_the_pages_own_rows_and_how_many_it_sees():
    events = [Event("d", "page_enter", "page_enter", "p", "1", 0, 0)]
    events += [Event("d", "click", "click", "p", "1", n, n, {"item": n}) for n in range(1, 5)]
    machine = PartitionMachine({"t": [["click"]]}, SequencePolicy())
    for device_id in machine.absent(events):
        machine.activate(device_id, None, {})
    pages = [run.page for run in machine.handle(events)]
    assert [page[1] for page in pages] == [2, 3, 4, 5]
    assert all(page[0] is pages[0][0] for page in pages)
    shown = [[row[2] for row in plain_page(page)[5]] for page in pages]
    assert shown == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
