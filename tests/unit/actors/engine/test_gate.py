"""Who computes in an engine actor, and when nobody else may."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from walle_stream.actors.engine.gate import Gate


class Inside:
    """Somebody who is inside until let out."""

    def __init__(self, gate, ticket=""):
        self.has_entered, self.may_leave = threading.Event(), threading.Event()
        self.is_admitted = None
        self._thread = threading.Thread(target=self._run, args=(gate, ticket), daemon=True)
        self._thread.start()

    def _run(self, gate, ticket):
        with gate.inside(ticket) as self.is_admitted:
            self.has_entered.set()
            self.may_leave.wait(10)

    def leave(self):
        self.may_leave.set()
        self._thread.join(10)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def waits(gate, count):
    tick = threading.Event()
    while len(gate._waiting) != count:
        tick.wait(0.001)


def test_so_many_are_inside_and_the_next_comes_when_one_leaves():
    gate = Gate(2)
    first, second = Inside(gate), Inside(gate)
    assert first.has_entered.wait(10)
    assert second.has_entered.wait(10)
    third = Inside(gate)
    waits(gate, 1)
    assert not third.has_entered.is_set()
    first.leave()
    assert third.has_entered.wait(10)
    second.leave()
    third.leave()


def test_a_reservation_waits_for_all_and_keeps_all_out(threads):
    gate = Gate(2)
    before = Inside(gate)
    assert before.has_entered.wait(10)
    reserved = threads.submit(gate.reserve, "t")
    waits(gate, 1)
    behind = Inside(gate)
    waits(gate, 2)
    assert not reserved.done()
    before.leave()
    reserved.result(10)
    assert not behind.has_entered.is_set()
    alone = Inside(gate, "t")
    assert alone.has_entered.wait(10)
    assert alone.is_admitted
    assert not behind.has_entered.is_set()
    alone.leave()
    assert behind.has_entered.wait(10)
    behind.leave()


def test_a_reservation_whose_owner_does_not_come_is_over():
    gate = Gate(1, lease_s=0)
    gate.reserve("dead")
    other = Inside(gate)
    assert other.has_entered.wait(10)
    late = Inside(gate, "dead")
    assert late.has_entered.wait(10)
    assert not late.is_admitted
    late.leave()
    other.leave()


def test_reservations_come_in_turn(threads):
    gate = Gate(4)
    gate.reserve("a")
    second = threads.submit(gate.reserve, "b")
    waits(gate, 1)
    Inside(gate, "a").leave()
    second.result(10)
    with gate.inside("b") as is_inside:
        assert is_inside
