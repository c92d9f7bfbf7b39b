"""A capability of a partition is one class and one line of the list."""

import pytest

from tests.property.test_recovery_property import Life, deliver
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.parts import order
from walle_stream.actors.parts.part import Part
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.sequence import SequencePolicy

pytestmark = pytest.mark.actors

KEY = b"\xf0tally"


class Tally(Part):
    """Counts features in a row of its own."""

    def restart(self, opening):
        self.count = int(opening.rows.get(KEY) or 0)

    def contribute(self, turn, rows):
        self.count += len(turn.records)
        rows.batch.put(KEY, b"%d" % self.count)


def made_batch(events, number):
    return SourceBatch(0, EventBatch(events), b"%d" % number, SourceCounts(), [])


def test_a_part_that_is_added_commits_with_the_others_through_any_death(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "PARTS", [*order.PARTS, lambda _: Tally()])
    life = Life(tmp_path, 30, 5, SequencePolicy(page_timeout_ms=50, out_of_order_ms=5))
    host, events = life.open(), make_events(11)
    for number, start in enumerate(range(0, len(events), 10), 1):
        batch = made_batch(events[start : start + 10], number)
        if number % 3 == 0:
            host.take([Delivery(batch, 0.0)])
            host.abandon()  # taken, not committed
            host = life.open()
            batch = made_batch(events[start : start + 10], number)
        deliver(host, Delivery(batch, 0.0))
    features = host.status().counters.features
    host.close(0.0)
    with PartitionStore.open(tmp_path / "rows", read_only=True) as store:
        assert int(store.get(KEY)) == features > 0
