"""Offsets are acknowledged in their order, as Faust passes over one that waits."""

from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from faust.transport.consumer import Consumer
from faust.types import TP

from walle_connectors.faust.acks import AckOrder


class Topic:
    """Events of it, and what was acknowledged."""

    def __init__(self):
        self.acked, self.unacked = [], set()
        self.order = AckOrder(lambda: self.unacked)

    def take(self, offset, partition=0):
        message = TP("t", partition)._replace(topic=str(offset))
        self.unacked.add(message)

        def ack():
            self.acked.append((partition, offset))
            self.unacked.discard(message)

        return self.order.take(SimpleNamespace(message=message, ack=ack))

    @property
    def waited_for(self):
        return sorted(int(each.topic) for each in self.unacked)


def test_one_that_waits_holds_back_those_behind_it_in_its_partition_alone():
    topic = Topic()
    first, second, third = (topic.take(n) for n in range(3))
    beside = topic.take(7, partition=1)
    for each in (third, beside, second):
        each.ack()
    assert topic.acked == [(1, 7)]
    first.ack()
    assert topic.acked == [(1, 7), (0, 0), (0, 1), (0, 2)]


def test_after_partitions_moved_nothing_waits_for_a_record_from_before():
    topic = Topic()
    before = [topic.take(n) for n in (3, 4)]
    topic.order.begin_anew()
    topic.take(3).ack()
    assert topic.acked == [(0, 3)]
    before[1].ack()
    assert topic.acked == [(0, 3)]
    before[0].ack()
    assert topic.acked == [(0, 3), (0, 3), (0, 4)]


def test_nothing_waits_for_one_that_is_set_aside_nor_for_those_behind_it():
    topic = Topic()
    taken = [topic.take(n) for n in range(4)]
    taken[0].ack()
    taken[1].set_aside()
    taken[2].ack()
    assert topic.waited_for == [3]
    taken[3].ack()
    assert topic.waited_for == []
    assert topic.acked == [(0, 0)]
    taken[1].ack()
    assert topic.acked == [(0, n) for n in range(4)]


def test_faust_itself_passes_over_a_record_that_is_not_acknowledged():
    """Why there is an order: where this fails, a later Faust needs none."""
    place = TP("t", 0)
    consumer = SimpleNamespace(
        _committed_offset={place: 100},  # what is read next
        _acked={place: [101]},
        _acked_index={place: {101}},
        _gap={place: None},
    )
    assert Consumer._new_offset(consumer, place) == 102
