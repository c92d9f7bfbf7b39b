"""Cores that others take change no batch: the host's turns are those of a quiet machine."""

from types import MappingProxyType, SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.actors.batching import BatchSizer, OwnTime
from walle_stream.actors.device_host import Close, DeviceHost, Pull
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.supervisor import RestartPolicy
from walle_stream.events import Event
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts

EVENT = Event("d", "click", "click", "p", "", 1, 1)
TURNS = 60


class Machine:
    """Two clocks. Work moves both; whatever others take moves the wall's alone."""

    def __init__(self, stolen_ms):
        self.worked_ms, self.passed_ms, self.looks = 1.0, 1.0, 0
        self.stolen_ms = stolen_ms

    def work(self, ms):
        self.worked_ms += ms
        self.passed_ms += ms

    def wall(self):
        self.looks += 1
        self.passed_ms += self.stolen_ms[self.looks % len(self.stolen_ms)]
        return self.passed_ms

    def own_time(self):
        return OwnTime(lambda: self.worked_ms, self.wall)


class Partition:
    """A partition host that only works."""

    pool = offset = None
    outbox = SimpleNamespace(is_waiting=False, due=list)
    parts = MappingProxyType({Calls: SimpleNamespace(is_expecting=False)})

    def __init__(self, number, machine, costs, commits):
        self.number, self.machine, self.commits = number, machine, commits
        self.take_ms, self.fixed_ms, self.each_ms = costs
        self.taken, self.last, self.committed = 0, None, None

    def take(self, deliveries):
        self.last = deliveries[-1]
        if self.last is self.committed:
            return
        events = sum(len(each.batch.events) for each in deliveries)
        self.machine.work(self.take_ms * (events - self.taken))
        self.taken = events

    def committing(self):
        yield from ()
        self.machine.work(self.fixed_ms + self.each_ms * self.taken)
        self.commits.append((self.number, self.taken))
        self.taken, self.committed = 0, self.last

    def send(self, frames):
        assert not frames

    def restart(self):
        raise AssertionError("nothing failed")

    def idle(self, *, is_last=False):
        pass

    def finish(self, _deadline_ms):
        pass

    close = finish

    def status(self):
        return None


class Endless:
    """A source that always has as much as is asked for."""

    def __init__(self, machine, read_ms):
        self.machine, self.read_ms = machine, read_ms
        self.batch_events, self.is_done = 1, False

    def read(self):
        self.machine.work(self.read_ms)
        events = [EVENT] * self.batch_events
        return [SourceBatch(0, EventBatch(events), b"1", SourceCounts(), [])]

    def drain(self):
        return []


def commits_of(stolen_ms, costs, read_ms, target_ms):
    machine, commits = Machine(stolen_ms), []
    sizer = BatchSizer(target_ms, 2_000, machine.own_time())
    partition = Partition(0, machine, costs, commits)
    host = DeviceHost("h", lambda: [partition], RestartPolicy(), sizer)
    host.on_start()
    sent = []
    host.on_message(Pull(Endless(machine, read_ms), sent.append))
    while len(commits) < TURNS:
        host.on_message(sent.pop())
    host.on_message(Close(0.0))
    return commits[:TURNS]


@settings(max_examples=50)
@given(
    stolen_ms=st.lists(st.sampled_from([0.0, 0.1, 4.0, 30.0, 1_000.0]), min_size=1, max_size=20),
    costs=st.tuples(
        st.sampled_from([0.005, 0.02, 1.0]),
        st.sampled_from([0.0, 0.5, 10.0]),
        st.sampled_from([0.001, 0.02, 2.0]),
    ),
    read_ms=st.sampled_from([0.0, 1.0]),
    target_ms=st.sampled_from([5.0, 20.0, 500.0]),
)
def test_batches_are_those_of_a_machine_of_its_own(stolen_ms, costs, read_ms, target_ms):
    quiet = commits_of([0.0], costs, read_ms, target_ms)
    assert commits_of(stolen_ms, costs, read_ms, target_ms) == quiet
