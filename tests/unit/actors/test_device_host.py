"""A device host's turns: several deliveries to a commit, and what failed is taken again."""

import msgspec
import pytest

from tests.property.test_recovery_property import CountingPool, Life, canonical
from tests.unit.stream.test_machine import TRIGGERS, make_events
from walle_stream.actors import device_host
from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.device_host import Close, DeviceHost, GetStatus, Pull
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.supervisor import RestartPolicy
from walle_stream.actors.turns.turn import Delivery
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceError, VmCrashedError
from walle_stream.events import Event
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store import keys
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.tunnel.session import UplinkSession

pytestmark = pytest.mark.actors

POLICY = SequencePolicy(page_timeout_ms=50, out_of_order_ms=5)
BATCH = 7


class FailingPool(CountingPool):
    """Crashes at some calls, then goes on."""

    def __init__(self, failures):
        self.failures, self.calls = failures, 0

    def run(self, task, groups, *, is_doubtful):
        self.calls += 1
        if self.calls in self.failures:
            raise VmCrashedError("as the test wants it")
        return super().run(task, groups, is_doubtful=is_doubtful)


class ListReader:
    """Gives batches of a list, one at a read."""

    def __init__(self, batches):
        self.batches, self.batch_events, self.keeps_raw = list(batches), 0, False

    def read(self):
        return [self.batches.pop(0)] if self.batches else []

    def drain(self):
        return []

    @property
    def is_done(self):
        return not self.batches


def batches():
    events = make_events(11)
    last = (len(events) - 1) // BATCH
    for number in range(last + 1):
        given = events[number * BATCH : (number + 1) * BATCH]
        offset = b"%d" % (number + 1)
        yield SourceBatch(0, EventBatch(given), offset, SourceCounts(), [], is_end=number == last)


def open_host(folder, pool, commit_events):
    life = Life(folder, 30, 10**6, POLICY)
    life.pool = pool
    host = DeviceHost("h", lambda: [life.open()], RestartPolicy(), BatchSizer(1e9, commit_events))
    host.on_start()
    return host


def stored(folder):
    with PartitionStore.open(folder / "rows", read_only=True) as store:
        return dict(canonical(store))


def test_what_was_taken_is_in_hand_until_its_commit(tmp_path):
    found = []

    class Looking(FailingPool):
        def run(self, task, groups, *, is_doubtful):
            found.append(host.in_hand_events)  # as another thread sees it, in the middle of a turn
            return super().run(task, groups, is_doubtful=is_doubtful)

    host = open_host(tmp_path, Looking(()), 10**6)
    for batch in batches():
        host.on_message(Delivery(batch, 0.0))
    assert found[0] == len(make_events(11))
    assert host.in_hand_events == 0
    host.on_message(Close(0.0))


def run(folder, failures=(), commit_events=20):
    folder.mkdir()
    pool = FailingPool(failures)
    host = open_host(folder, pool, commit_events)
    for batch in batches():
        host.on_message(Delivery(batch, 0.0))
    host.on_message(Close(0.0))
    return stored(folder), pool.calls


@pytest.mark.parametrize("commit_events", [1, 20, 1_000])
def test_what_failed_is_taken_again_from_its_encoded_events(tmp_path, commit_events):
    expected, calls = run(tmp_path / "whole", commit_events=commit_events)
    found, with_failures = run(tmp_path / "failed", {1, 3, 4}, commit_events)
    assert found == expected
    assert with_failures > calls


def test_a_turn_that_fails_again_and_again_ends_the_host(tmp_path):
    with pytest.raises(VmCrashedError):
        run(tmp_path / "failed", set(range(1, 100)))


def test_a_host_that_reads_by_itself_commits_the_same(tmp_path):
    expected, _ = run(tmp_path / "told")
    folder = tmp_path / "pulled"
    folder.mkdir()
    host = open_host(folder, CountingPool(), 20)
    sent = []
    pull = Pull(ListReader(batches()), sent.append)
    host.on_message(pull)
    while sent:
        host.on_message(sent.pop())
    assert (pull.done.is_set(), pull.is_ended, pull.events) == (True, True, len(make_events(11)))
    assert host.on_message(GetStatus())[0].counters.events == pull.events
    host.on_message(Close(0.0))
    assert stored(folder) == expected


@pytest.mark.parametrize(("room", "commits"), [(2 * BATCH, 1), (2 * BATCH + 1, 18)])
def test_a_host_that_keeps_up_with_its_source_commits_sooner(tmp_path, monkeypatch, room, commits):
    monkeypatch.setattr(device_host, "DELIVERY_EVENTS", room)
    monkeypatch.setattr(device_host, "LINGER_S", -1.0)
    host = open_host(tmp_path, CountingPool(), 1_000)
    sent = []
    host.on_message(Pull(ListReader(batches()), sent.append))
    while sent:
        host.on_message(sent.pop())
    assert host.on_message(GetStatus())[0].counters.commits == commits
    host.on_message(Close(0.0))


def test_reading_stops_where_it_is_asked_to(tmp_path):
    host = open_host(tmp_path, CountingPool(), 1_000)
    sent = []
    pull = Pull(ListReader(batches()), sent.append)
    host.on_message(pull)
    pull.stop.set()
    host.on_message(sent.pop())
    assert (pull.done.is_set(), pull.is_ended, pull.events, sent) == (True, False, BATCH, [])
    assert host.on_message(GetStatus())[0].counters.events == BATCH
    host.on_message(Close(0.0))


def latencies_of(folder, waited_ms):
    folder.mkdir()
    host = open_host(folder, CountingPool(), 20)
    page = [Event("d", kind, kind, "p", "1", 1, 1) for kind in ("page_enter", "page_exit")]
    batch = SourceBatch(0, EventBatch(page), b"1", SourceCounts(), [], is_end=True)
    batch.arrived_ms = None if waited_ms is None else monotonic_ms() - waited_ms
    host.on_message(Pull(ListReader([batch]), lambda _pull: None))
    [status] = host.on_message(GetStatus())
    host.on_message(Close(0.0))
    return status.latencies


def test_a_latency_counts_from_where_the_source_says_that_a_batch_arrived(tmp_path):
    waited = latencies_of(tmp_path / "waited", 1e7)
    handed = latencies_of(tmp_path / "handed", None)
    assert waited.count == handed.count == 1
    assert waited.sum_ms >= 1e7 > handed.sum_ms


def test_numbers_that_cannot_be_stored_cost_their_own_event_alone(tmp_path):
    host = open_host(tmp_path, CountingPool(), 1)
    numbers = [1, 2**64, -(2**70), 2**64 - 1]
    given = [Event("d", "click", "click", "p", "", n, n, {"n": x}) for n, x in enumerate(numbers)]
    counts = SourceCounts(4, 4)
    host.on_message(Delivery(SourceBatch(0, EventBatch(given), b"1", counts, []), 0.0))
    [status] = host.on_message(GetStatus())
    found = status.counters
    assert (found.events, found.accepted_rows, found.dead_letter_rows) == (2, 2, 2)
    host.on_message(Close(0.0))
    with PartitionStore.open(tmp_path / "rows", read_only=True) as store:
        letters = [value for _, value in store.scan(keys.DEAD_LETTER_PREFIX)]
    assert len(letters) == 2
    assert b"beyond 64 bits" in letters[0]
    assert b"18446744073709551616" in letters[0]


def test_what_was_read_before_a_source_failed_is_committed(tmp_path):
    class Broken(ListReader):
        def read(self):
            if len(self.batches) == 1:
                raise SourceError("cannot be read on")
            return super().read()

    given = list(batches())
    host, sent = open_host(tmp_path, CountingPool(), 10**6), []
    host.on_message(Pull(Broken(given), sent.append))
    for _ in given[2:]:
        host.on_message(sent.pop())
    with pytest.raises(SourceError):
        host.on_message(sent.pop())
    [status] = host.on_message(GetStatus())
    assert status.counters.events == sum(len(batch.events) for batch in batches()) - len(
        make_events(11)[(len(given) - 1) * BATCH :]
    )
    host.on_stop()


PARTITIONS = 3


class Shared:
    """Partitions of one host, each with a store, a tunnel and devices of its own."""

    def __init__(self, folder, pool, commit_events=20):
        self.lives = []
        for number in range(PARTITIONS):
            (folder / f"{number}").mkdir(parents=True)
            life = Life(folder / f"{number}", 30, 10**6, POLICY, number)
            life.pool = pool
            self.lives.append(life)
        sizer = BatchSizer(1e9, commit_events)
        self.host = DeviceHost(
            "h", lambda: [life.open() for life in self.lives], RestartPolicy(), sizer
        )
        self.host.on_start()

    def run(self):
        given = [list(self.batches(number)) for number in range(PARTITIONS)]
        for together in zip(*given, strict=True):
            for batch in together:
                self.host.on_message(Delivery(batch, 0.0))
        self.host.on_message(Close(0.0))
        return [stored(life.folder) for life in self.lives]

    @staticmethod
    def batches(number):
        for batch in batches():
            batch.partition = number
            batch.events = EventBatch(
                [
                    msgspec.structs.replace(event, device_id=f"{event.device_id}-{number}")
                    for event in batch.events
                ]
            )
            yield batch


def run_apart(folder):
    found = []
    for number in range(PARTITIONS):
        (folder / f"{number}").mkdir(parents=True)
        life = Life(folder / f"{number}", 30, 10**6, POLICY, number)
        sizer = BatchSizer(1e9, 20)
        host = DeviceHost("h", lambda of=life: [of.open()], RestartPolicy(), sizer)
        host.on_start()
        for batch in Shared.batches(number):
            host.on_message(Delivery(batch, 0.0))
        host.on_message(Close(0.0))
        found.append(stored(life.folder))
    return found


@pytest.mark.parametrize("commit_events", [1, 20, 1_000])
def test_partitions_that_commit_together_hold_what_each_holds_alone(tmp_path, commit_events):
    pool = FailingPool(())
    assert Shared(tmp_path / "t", pool, commit_events).run() == run_apart(tmp_path / "a")


def test_partitions_of_a_host_share_calls(tmp_path):
    pool = FailingPool(())
    several = Shared(tmp_path, pool, 10**6)
    for number in range(PARTITIONS):
        for batch in list(several.batches(number))[:10]:
            several.host.on_message(Delivery(batch, 0.0))
    several.host.on_idle()
    runs = [status.counters.task_runs for status in several.host.on_message(GetStatus())]
    assert all(runs)
    assert 0 < pool.calls <= len(TRIGGERS)
    several.host.on_message(Close(0.0))


def test_a_call_that_fails_is_made_again_for_every_partition(tmp_path):
    expected = Shared(tmp_path / "whole", FailingPool(())).run()
    assert Shared(tmp_path / "failed", FailingPool({1, 5, 6, 9})).run() == expected


def test_a_partition_whose_store_fails_does_not_touch_the_others(tmp_path, monkeypatch):
    expected = Shared(tmp_path / "whole", FailingPool(())).run()
    restarted, commit, failures = [], PartitionRows.commit, iter([True, False, True])
    restart = PartitionHost.restart

    def fail(self, head, offset):
        is_one = offset is not None and self.path.parent.name == "1"
        if is_one and next(failures, False):
            raise VmCrashedError("as the test wants it")
        commit(self, head, offset)

    def watched(self):
        restarted.append(self.number)
        restart(self)

    monkeypatch.setattr(PartitionRows, "commit", fail)
    monkeypatch.setattr(PartitionHost, "restart", watched)
    several = Shared(tmp_path / "failed", FailingPool(()))
    restarted.clear()  # what opened them
    assert several.run() == expected
    assert restarted == [1, 1]


def test_all_is_written_and_then_sent_at_once(tmp_path, monkeypatch):
    several, done = Shared(tmp_path, FailingPool(()), 10**6), []
    commit, send = PartitionRows.commit, UplinkSession.send

    def watched_commit(self, head, offset):
        commit(self, head, offset)
        done.append("written")

    def watched_send(self, frames):
        send(self, frames)
        done.append(sorted({partition for partition, _, _ in frames}))

    monkeypatch.setattr(PartitionRows, "commit", watched_commit)
    monkeypatch.setattr(UplinkSession, "send", watched_send)
    for number in range(PARTITIONS):
        for batch in list(several.batches(number))[:10]:
            several.host.on_message(Delivery(batch, 0.0))
    several.host.on_idle()
    assert done == ["written"] * PARTITIONS + [list(range(PARTITIONS))]
    several.host.on_message(Close(0.0))
