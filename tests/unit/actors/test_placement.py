"""Partitions that a source places: they wander between hosts, and nothing is lost or doubled."""

from itertools import pairwise

import pytest

from tests.property.test_recovery_property import Life
from tests.unit.actors.test_device_host import POLICY, FailingPool, batches, run
from tests.unit.actors.test_device_host import stored as stored_in
from walle_stream.actors import device_host
from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.device_host import Close, DeviceHost, GetStatus, Pull
from walle_stream.actors.supervisor import RestartPolicy
from walle_stream.clock import monotonic_ms
from walle_stream.errors import VmCrashedError

pytestmark = pytest.mark.actors

FAR_MS = float("inf")


class Member:
    """A host and its reader, which gives a partition's batches behind the stored offset."""

    def __init__(self, folder, failures=()):
        life = Life(folder, 30, 10**6, POLICY)
        life.pool = FailingPool(failures)
        self.opened = []

        def open_placed(number, generation):
            self.opened.append((number, generation))
            return life.open()

        policy = RestartPolicy()
        self.host = DeviceHost("h", list, policy, BatchSizer(1e9, 20), open_placed)
        self.host.on_start()
        self.batch_events, self.keeps_raw = 0, False
        self.steps, self.sent, self.is_done, self.left = [], [], False, 0
        self.pull = Pull(self, self.sent.append)
        self.sent.append(self.pull)

    def read(self):
        return self.steps.pop(0)()

    def drain(self):
        return ()

    def close(self):
        self.left += 1
        self.host.revoke(list(self.host._partitions), FAR_MS)

    def turn(self, step):
        self.steps.append(step)
        self.host.on_message(self.sent.pop())

    def assign(self, generation):
        offsets = {}

        def step():
            offsets.update(self.host.assign([0], generation))
            return ()

        self.turn(step)
        return int(offsets.get(0, b"0"))

    def give(self, some):
        for batch in some:
            self.turn(lambda batch=batch: [batch])


def revoked(member):
    return lambda: member.host.revoke([0], FAR_MS) or ()


def lost(member):
    return lambda: member.host.lose([0]) or ()


@pytest.fixture
def expected(tmp_path):
    return run(tmp_path / "expected")[0]


@pytest.mark.parametrize("taken_away", [revoked, lost])
def test_a_partition_that_wanders_holds_what_one_that_stayed_holds(tmp_path, expected, taken_away):
    folder = tmp_path / "w"
    folder.mkdir()
    members = [Member(folder), Member(folder)]
    cuts = [0, 3, 4, 11, len(list(batches()))]
    for generation, (_, cut) in enumerate(pairwise(cuts), 1):
        member = members[generation % 2]
        at = member.assign(generation)
        assert member.opened[-1] == (0, generation)
        member.give(list(batches())[at:cut])  # read again: a host lets go what it took
        member.turn(taken_away(member))
        assert member.host.on_message(GetStatus()) == []
    # what a member lost had not been committed: the next one takes it again
    last = Member(folder)
    last.give(list(batches())[last.assign(9) :])
    [status] = last.host.on_message(Close(0.0))
    assert (status.number, last.left) == (0, 1)
    assert stored_in(folder) == expected


@pytest.mark.parametrize("expected_ms", [0, 10**9])
def test_what_cannot_be_committed_in_time_goes_as_it_was(
    tmp_path, expected, expected_ms, caplog, monkeypatch
):
    monkeypatch.setattr(device_host, "LINGER_S", 3_600.0)  # however slow this machine is
    folder = tmp_path / "w"
    folder.mkdir()
    member = Member(folder)
    member.assign(1)
    member.give(list(batches())[:4])
    committed = member.host._partitions[0].offset
    member.host._sizer.expected_ms = lambda _events: expected_ms
    assert member.host._waiting
    member.turn(lambda: member.host.revoke([0], monotonic_ms() + 10**6) or ())
    assert member.host.on_message(GetStatus()) == []
    assert ("moves without its last" in caplog.text) is (expected_ms > 0)
    last = Member(folder)
    assert last.assign(2) == (4 if not expected_ms else int(committed or b"0"))
    last.give(list(batches())[int(last.host._partitions[0].offset or b"0") :])
    last.host.on_message(Close(0.0))
    assert stored_in(folder) == expected


def test_what_went_elsewhere_is_told_at_the_end(tmp_path):
    member = Member(tmp_path)
    member.assign(1)
    member.give(list(batches())[:4])
    member.turn(revoked(member))
    [status] = member.host.on_message(Close(0.0))
    assert status.counters.events == 28
    member = Member(tmp_path)
    assert member.assign(2) == 4
    [status] = member.host.on_message(Close(0.0))
    assert status.counters.events == 28


def test_a_partition_that_cannot_be_committed_stays_at_its_last_commit(tmp_path):
    member = Member(tmp_path, failures=range(1, 100))
    member.assign(1)
    with pytest.raises(VmCrashedError):
        member.give(batches())
    member.host.on_stop()
    assert Member(tmp_path).assign(2) == 0


def test_a_host_that_takes_none_says_so(tmp_path):
    host = DeviceHost("h", list, RestartPolicy(), BatchSizer(1e9, 20))
    with pytest.raises(TypeError, match="takes no partitions"):
        host.assign([0], 1)
    assert not list(tmp_path.iterdir())
