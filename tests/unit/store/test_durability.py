"""Group commit: what counts as durable is on the disk, whatever comes between."""

from threading import Event, Semaphore

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.errors import StoreError, StoreFullError
from walle_stream.store.durability import Durability

NEVER = None
AT_ONCE = 0.0
LONG = 3_600_000.0


class Disk:
    """A store of numbers that forgets what was not flushed; flushes are let through one by one."""

    def __init__(self, every_ms, *, is_held=True):
        self.written, self.flushed = 0, 0
        self.may_flush = Semaphore(0)
        self.is_flushing = Event()
        self.is_held = is_held
        self.durability = Durability(self.flush, every_ms, "disk")

    def write(self):
        self.written += 1
        return self.durability.commit()

    def flush(self):
        # as a disk: what is written while it runs may be in it or not
        reached = self.written
        self.is_flushing.set()
        if self.is_held:
            self.may_flush.acquire()
        self.flushed = reached

    def let_through(self):
        """One flush, to its end, if one is to come."""
        if self.durability.is_behind:
            flushes = self.durability.flushes
            self.may_flush.release()
            with self.durability._condition:
                self.durability._condition.wait_for(lambda: self.durability.flushes > flushes)

    def close(self):
        self.is_held = False
        self.may_flush.release(10_000)
        self.durability.close()


@pytest.fixture
def disk():
    opened = Disk(AT_ONCE)
    yield opened
    opened.close()


def test_never_flushed_counts_as_durable_at_once():
    disk = Disk(NEVER)
    tickets = [disk.write() for _ in range(3)]
    disk.durability.wait()
    assert disk.durability.durable() == tickets[-1] == 3
    assert (disk.flushed, disk.durability.flushes, disk.durability.is_behind) == (0, 0, False)
    disk.close()


def test_a_write_is_not_durable_before_its_flush(disk):
    ticket = disk.write()
    assert disk.durability.durable() < ticket
    assert disk.durability.is_behind
    disk.let_through()
    assert disk.durability.durable() == ticket
    assert not disk.durability.is_behind


def test_one_flush_serves_all_that_came_while_the_one_before_ran(disk):
    disk.write()
    assert disk.is_flushing.wait(30)
    tickets = [disk.write() for _ in range(50)]
    disk.let_through()
    assert disk.durability.durable() == 1
    disk.let_through()
    assert (disk.durability.durable(), disk.durability.flushes) == (tickets[-1], 2)


def test_who_waits_does_not_wait_for_the_interval():
    disk = Disk(LONG, is_held=False)
    disk.durability.wait(disk.write())  # the first is flushed at once
    ticket = disk.write()
    assert disk.durability.is_behind
    disk.durability.wait(ticket)
    assert (disk.flushed, disk.durability.flushes) == (2, 2)
    disk.close()


def test_the_interval_is_kept_where_nobody_waits():
    disk = Disk(LONG, is_held=False)
    disk.durability.wait(disk.write())
    for _ in range(100):
        disk.write()
    assert (disk.durability.durable(), disk.durability.flushes) == (1, 1)
    disk.close()
    assert disk.flushed == 101  # the end flushes the rest


def test_after_a_failed_flush_nothing_is_durable_and_nothing_is_taken():
    def fail():
        raise StoreFullError("full")

    durability = Durability(fail, AT_ONCE, "disk")
    ticket = durability.commit()
    with pytest.raises(StoreFullError):
        durability.wait(ticket)
    with pytest.raises(StoreFullError):
        durability.durable()
    with pytest.raises(StoreFullError):
        durability.commit()
    durability.close()


def test_an_error_that_nobody_foresaw_is_told_to_who_waits():
    durability = Durability(lambda: 1 / 0, AT_ONCE, "disk")
    with pytest.raises(StoreError, match="disk"):
        durability.wait(durability.commit())
    durability.close()


STEPS = st.lists(st.sampled_from(["write", "flush", "look", "cut"]), max_size=40)


@settings(max_examples=60)
@given(STEPS, st.sampled_from([AT_ONCE, LONG]))
def test_what_was_acknowledged_survives_a_cut_at_any_point(steps, every_ms):
    disk, acknowledged = Disk(every_ms), 0
    try:
        for step in steps:
            if step == "write":
                disk.write()
            elif step == "look":
                acknowledged = disk.durability.durable()
            elif step == "flush" and every_ms == AT_ONCE:
                disk.let_through()
            elif step == "flush" and disk.durability.is_behind:
                disk.may_flush.release()
                disk.durability.wait(acknowledged + 1)
            elif step == "cut":
                assert acknowledged <= disk.flushed
                assert disk.durability.durable() <= disk.flushed
    finally:
        disk.close()
    assert disk.flushed == disk.written
