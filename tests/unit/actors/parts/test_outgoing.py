"""Output of a commit waits, in order, until the commit is durable."""

from functools import partial

import pytest

from tests.unit.store.test_durability import AT_ONCE, NEVER, Disk
from walle_stream.actors.parts import outgoing
from walle_stream.actors.parts.outgoing import Outgoing

pytestmark = pytest.mark.actors


class Session:
    def frame(self, number, body):
        return 0, number, body


class Partition:
    """A store that counts its commits, and what they let out."""

    def __init__(self, every_ms, *, is_held=True):
        self.disk = Disk(every_ms, is_held=is_held)
        self.durable, self.sent = [], []
        self.outgoing = Outgoing(self.disk.durability, Session())

    def commit(self, number, body=b"x"):
        self.disk.write()
        self.outgoing.add([(number, body)], [partial(self.durable.append, number)])
        self.step()

    def step(self):
        self.sent += self.outgoing.step()

    @property
    def left(self):
        assert self.durable == [number for _, number, _ in self.sent]
        return self.durable


@pytest.fixture
def partition():
    opened = Partition(AT_ONCE)
    yield opened
    opened.disk.close()


def test_without_flushes_a_commit_lets_out_at_once():
    partition = Partition(NEVER)
    partition.commit(1)
    assert partition.left == [1]
    assert not partition.outgoing.is_waiting


def test_nothing_leaves_before_its_commit_is_durable(partition):
    partition.commit(1)
    assert partition.disk.is_flushing.wait(30)
    partition.commit(2)
    partition.step()
    assert partition.left == []
    partition.disk.let_through()
    partition.step()
    assert partition.left == [1]
    partition.disk.let_through()
    partition.step()
    assert partition.left == [1, 2]
    assert not partition.outgoing.is_waiting


def test_settle_waits_for_the_disk():
    partition = Partition(AT_ONCE, is_held=False)
    partition.commit(1)
    partition.commit(2)
    partition.sent += partition.outgoing.settle()
    assert partition.left == [1, 2]
    partition.disk.close()


def test_a_commit_waits_where_too_many_bytes_do(monkeypatch):
    monkeypatch.setattr(outgoing, "WAITING_MAX_BYTES", 10)
    partition = Partition(3_600_000.0, is_held=False)
    for number in range(1, 6):
        partition.commit(number, b"12345678")
    waiting = [number for number in range(1, 6) if number not in partition.left]
    assert len(waiting) <= 1  # those of at most ten bytes
    partition.disk.close()
