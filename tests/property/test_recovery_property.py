"""A partition that dies again and again holds what one that never died holds."""

import tempfile
from itertools import pairwise
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.stream.test_machine import TRIGGERS, make_events
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.part import PartitionSetup
from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, InstalledTask, SourceBatch, SourceCounts
from walle_stream.store import keys
from walle_stream.store.in_hand import InHand
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.pages import plain_page
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.tunnel.session import UplinkSession
from walle_stream.vm.results import GroupResult, RunResult


class CountingPool:
    """Runs no script: each run counts itself in the state and emits the count."""

    def run(self, _task, groups, *, is_doubtful):
        assert not is_doubtful
        return [self._group(*group) for group in groups]

    def _group(self, device_id, state, runs):
        count = int(state.get("count", b"0"))
        results = []
        for position, clock_ms, page in runs:
            count += 1
            emit = msgspec.json.encode([count, position, clock_ms, plain_page(page)])
            results.append(RunResult(ok=True, emits=[(emit, b"")]))
        return GroupResult(device_id, {"count": b"%d" % count}, results)


class Tunnel:
    """Acknowledges all; nothing comes down."""

    def __init__(self):
        self.numbers = []

    def send(self, frames):
        self.numbers += [number for _, number, _ in frames]

    def acks(self, _partition):
        numbers, self.numbers = self.numbers, []
        return numbers

    def receive(self, _partition, _position, _max_bytes):
        return []

    def release(self, _partition, _position):
        pass


def deliver(host, *deliveries):
    """Have a partition's host handle batches to their commit."""
    host.take(deliveries)
    host.commit()


class Life:
    """A partition in a folder."""

    def __init__(self, folder, horizon, keep, policy, number=0):
        self.folder, self.number = folder, number
        self.tunnel, self.pool = Tunnel(), CountingPool()
        self.plan = PartitionPlan(
            tasks={
                task: InstalledTask("1", tuple(map(tuple, found)), task)
                for task, found in TRIGGERS.items()
            },
            policy=policy,
            in_hand=InHand.open(folder / "in-hand", number + 1),
            batch_events=100,
            active_devices=keep,
            journal_events=horizon,
        )

    def open(self):
        number = self.number
        return PartitionHost(
            PartitionSetup(
                number,
                self.plan,
                self.pool,
                lambda: PartitionRows(PartitionStore.open(self.folder / "rows")),
                lambda rows: UplinkSession(
                    self.tunnel, number, rows.next_epoch(), "ab" * 16, rows.outbox()
                ),
                self.tunnel,
            )
        )

    def run(self, events, cuts, deaths, ends=()):
        host = self.open()
        bounds = [0, *sorted(cuts), len(events)]
        for number, (start, end) in enumerate(pairwise(bounds)):
            batch = SourceBatch(
                0,
                EventBatch(events[start:end]),
                b"%d" % (number + 1),
                SourceCounts(),
                [],
                number == len(cuts),
            )
            deliver(host, Delivery(batch, 0.0))
            if number in ends:
                host.idle()  # as a host of a live source is, before it is told to stop
                host.close(0.0)
                host = self.open()
            if number in deaths:
                host.abandon()
                host = self.open()
        host.close(0.0)
        with PartitionStore.open(self.folder / "rows", read_only=True) as store:
            return dict(canonical(store))


def canonical(store):
    for prefix in (keys.DEADLINE_PREFIX, keys.JOURNAL_PREFIX, keys.DEVICE_PREFIX):
        for key, value in store.scan(prefix):
            is_device = prefix == keys.DEVICE_PREFIX and keys.parse_device(key)[1] == 1
            yield key, msgspec.msgpack.decode(value)[1][:6] if is_device else value


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 120), max_size=12),
    st.sets(st.integers(0, 12)),
    st.sets(st.integers(0, 12)),
    st.sampled_from([0, 2, 10**6]),
    st.sampled_from([0, 1, 30, 10**6]),
)
@example(0, [40, 80], {1}, {0}, 10**6, 10**6)
def test_deaths_ends_passivation_and_the_horizon_change_nothing(
    seed, cuts, deaths, ends, keep, horizon
):
    events = make_events(seed)
    policy = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
    with tempfile.TemporaryDirectory() as folder:
        expected = Life(Path(folder), 0, 10**6, policy).run(events, [], ())
    with tempfile.TemporaryDirectory() as folder:
        assert Life(Path(folder), horizon, keep, policy).run(events, cuts, deaths, ends) == expected


def test_a_changed_definition_does_not_change_what_was_handled_before_it(tmp_path):
    found = []
    for is_death in (False, True):
        folder = tmp_path / str(is_death)
        folder.mkdir()
        host = Life(folder, 10**6, 10**6, SequencePolicy(page_timeout_ms=50)).open()
        deliver(
            host,
            Delivery(SourceBatch(0, EventBatch(make_events(7)), b"1", SourceCounts(), []), 0.0),
        )
        if is_death:
            host.abandon()
        else:
            host.close(0.0)
        # were the batch handled with this policy, every page would still be open
        host = Life(folder, 10**6, 10**6, SequencePolicy()).open()
        deliver(
            host,
            Delivery(SourceBatch(0, EventBatch([]), b"2", SourceCounts(), [], is_end=True), 0.0),
        )
        host.close(0.0)
        with PartitionStore.open(folder / "rows", read_only=True) as store:
            found.append(dict(canonical(store)))
    assert found[0] == found[1]
