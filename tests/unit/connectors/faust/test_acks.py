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
        self.acked = []

    def event(self, offset, partition=0):
        ack = lambda: self.acked.append((partition, offset))  # noqa: E731 - it is short
        return SimpleNamespace(message=SimpleNamespace(partition=partition), ack=ack)


def test_one_that_waits_holds_back_those_behind_it_in_its_partition_alone():
    topic, order = Topic(), AckOrder()
    first, second, third = (order.take(topic.event(n)) for n in range(3))
    beside = order.take(topic.event(7, partition=1))
    for each in (third, beside, second):
        each.ack()
    assert topic.acked == [(1, 7)]
    first.ack()
    assert topic.acked == [(1, 7), (0, 0), (0, 1), (0, 2)]


def test_after_partitions_moved_nothing_waits_for_a_record_from_before():
    topic, order = Topic(), AckOrder()
    before = [order.take(topic.event(n)) for n in (3, 4)]
    order.begin_anew()
    order.take(topic.event(3)).ack()
    assert topic.acked == [(0, 3)]
    before[1].ack()
    assert topic.acked == [(0, 3)]
    before[0].ack()
    assert topic.acked == [(0, 3), (0, 3), (0, 4)]


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
