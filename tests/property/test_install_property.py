"""Installing on running devices: deaths, passivation and the horizon change nothing of it."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.test_recovery_property import CountingPool, Life, canonical
from tests.unit.stream.test_machine import TRIGGERS, make_events
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, InstalledTask, SourceBatch, SourceCounts
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import DEFAULT_SET, SetDefinition, set_id_of
from walle_stream.vm.guest.migration import VERSION_KEY
from walle_stream.vm.results import GroupResult

NAMES = sorted(TRIGGERS)
POLICY = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
EVENTS = 120
FIRST = TRIGGERS["funnel"][0][0]


class LayoutPool(CountingPool):
    """As scripts do: the layout of the program that ran last lies beside the state."""

    def run(self, program, groups, *, is_doubtful):
        layout = int(program.partition("@")[2] or 1)
        results = []
        for device_id, state, runs in groups:
            assert int(state.get(VERSION_KEY, b"1")) <= layout  # a later one would be refused
            [result] = super().run(program, [(device_id, state, runs)], is_doubtful=is_doubtful)
            changes = {**result.state, VERSION_KEY: b"%d" % layout}
            results.append(GroupResult(device_id, changes, result.runs))
        return results


def task(name, layout, conditions):
    triggers = tuple(tuple(condition) for condition in conditions)
    return InstalledTask(f"v{layout}", triggers, f"{name}@{layout}", layout)


def sets_of(draws):
    """Sets with some tasks, of some layout, under their own or each other's conditions; no others."""
    sets = []
    for names, layout, shift in draws:
        chosen = sorted(names)
        tasks = dict.fromkeys(TRIGGERS) | {
            name: task(name, layout, TRIGGERS[NAMES[(NAMES.index(name) + shift) % len(NAMES)]])
            for name in chosen
        }
        sets.append((set_id_of(tasks), tasks))
    return sets


def run(life, events, cuts, installs, sets, deaths, apart):
    """Deliver with cuts; installs name (event before which, device, set).

    They share a commit with the events before them, but those that are ``apart``.
    """
    life.pool = LayoutPool()
    host = life.open()
    refused = []
    planned = {}
    for at, device, which in installs:
        planned.setdefault(at, []).append((device, which))
    start, number = 0, 0
    for end in sorted({*cuts, *planned, len(events)}):
        if end > start or end == len(events):
            number += 1
            is_end = end == len(events)
            batch = SourceBatch(
                0,
                EventBatch(events[start:end]),
                b"%d" % end,
                SourceCounts(),
                [],
                is_end and end not in planned,
            )
            host.take([Delivery(batch, 0.0)])
            if end not in planned or end in apart:
                host.commit()
            start = end
        # of several for one device the last one stands
        wanted = [tasks for _, tasks in sets]
        refused.extend(host.install(wanted, [each]) for each in planned.get(end, ()))
        if end in deaths:
            host.abandon()
            host = life.open()
    host.close(0.0)
    counts = host.status().counters
    with PartitionStore.open(life.folder / "rows", read_only=True) as store:
        rows = dict(canonical(store))
        rows["sets"] = {
            key: msgspec.msgpack.decode(value)[1][7]
            for key, value in store.scan(b"\x10")
            if keys.parse_device(key)[1] == keys.TABLE_DEVICE
        }
    return rows, refused, counts.features, counts.task_runs


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(st.sets(st.sampled_from(NAMES)), st.integers(1, 3), st.integers(0, 2)),
        min_size=1,
        max_size=3,
    ),
    st.lists(
        st.tuples(st.integers(0, EVENTS), st.sampled_from(["a", "b", "new"]), st.integers(0, 9)),
        max_size=8,
    ),
    st.lists(st.integers(0, EVENTS), max_size=8),
    st.sets(st.integers(0, EVENTS), max_size=20),
    st.sampled_from([0, 2, 10**6]),
    st.sampled_from([0, 1, 30, 10**6]),
)
@example(0, [(set(NAMES), 2, 1)], [(40, "a", 0), (80, "b", 0)], [], {40, 80}, 10**6, 10**6)
@example(3, [({"visit"}, 1, 0), ({"visit"}, 2, 0)], [(30, "a", 1), (80, "a", 0)], [], set(), 2, 30)
def test_deaths_and_passivation_change_nothing(seed, draws, installs, cuts, deaths, keep, horizon):
    events = make_events(seed)[:EVENTS]
    sets = sets_of(draws)
    installs = [(min(at, len(events)), name, n % len(sets)) for at, name, n in installs]
    cuts = [min(at, len(events)) for at in cuts]
    # batches end where something is installed, in both
    with tempfile.TemporaryDirectory() as folder:
        apart = range(EVENTS + 1)
        expected = run(Life(Path(folder), 0, 10**6, POLICY), events, (), installs, sets, (), apart)
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), horizon, keep, POLICY)
        assert run(life, events, cuts, installs, sets, deaths, ()) == expected


@settings(max_examples=4)
@given(st.integers(0, 10**6))
@example(1)
def test_an_installation_stands_behind_the_events_of_its_commit(seed):
    # a task that comes behind the first event of its path is not woken by the second one, also
    # where the journal alone knows of both
    events = make_events(seed)[:EVENTS]
    sets = sets_of([({"visit"}, 1, 0), (set(NAMES), 1, 0)])
    first = [(at, event.device_id) for at, event in enumerate(events, 1) if event.id == FIRST]
    installs = [
        (place, device, which) for at, device in first for place, which in ((at - 2, 0), (at, 1))
    ]
    installs = [each for each in installs if each[0] >= 0]
    with tempfile.TemporaryDirectory() as folder:
        life, apart = Life(Path(folder), 0, 10**6, POLICY), range(EVENTS + 1)
        expected = run(life, events, (), installs, sets, (), apart)
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), 10**6, 10**6, POLICY)
        assert run(life, events, (), installs, sets, {at for at, _, _ in installs}, ()) == expected


def woken_by(machine, events, version=""):
    """What events woke, of programs of a version: (task, device, positions)."""
    runs = machine.take(EventBatch(list(events))).runs
    assert all(program == task + version for task, program in runs)
    return sorted(
        (task, device_id, [position for position, _, _ in own])
        for (task, _), by_device in runs.items()
        for device_id, own in by_device.items()
    )


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, EVENTS), st.integers(0, 2))
def test_what_is_woken_is_woken_by_the_tasks_that_the_device_has(seed, at, shift):
    # strict contiguity: with other conditions from an event on, a match goes on where both agree
    events = make_events(seed)[:EVENTS]
    at = min(at, len(events))
    [(set_id, tasks)] = sets_of([(set(NAMES), 1, shift)])
    policy = SequencePolicy()
    default = SetDefinition(TRIGGERS, policy)
    sets = {DEFAULT_SET: default, set_id: SetDefinition.of(tasks, {}, policy)}
    machine = PartitionMachine(sets.__getitem__)
    before = PartitionMachine(lambda _: default)
    conditions = {name: each.triggers for name, each in tasks.items()}
    after = PartitionMachine(lambda _: SetDefinition(conditions, policy))
    devices = sorted({event.device_id for event in events})
    for each in (machine, before, after):
        for device_id in devices:
            each.number = 1
            each.activate(device_id, None, tuple)
    found = woken_by(machine, events[:at])
    assert found == woken_by(before, events[:at])
    for device_id in devices:
        machine.install(device_id, set_id)
    woken = woken_by(machine, events[at:], "@1")
    if shift == 0:  # the same conditions: live matches go on
        assert woken == woken_by(before, events[at:])
        return
    # conditions of one id have no match to go on with
    woken_by(after, events[:at])
    rest = woken_by(after, events[at:])
    short = {name for name, each in conditions.items() if all(len(path) == 1 for path in each)}
    assert [each for each in woken if each[0] in short] == [
        each for each in rest if each[0] in short
    ]
