"""A partition whose tunnel is down: what is dropped is counted once, through any death."""

import pytest

from tests.property.test_recovery_property import Life, deliver
from tests.unit.stream.test_machine import make_events
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.part import PartitionSetup
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Delivery
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.tunnel.outbox import LimitedTunnel, OutboxPolicy
from walle_stream.tunnel.receiver import DeviceSeen, Verdict
from walle_stream.tunnel.session import UplinkSession
from walle_stream.wire.envelope import decode_uplink
from walle_stream.wire.frame import decode_body

pytestmark = pytest.mark.actors

MAX_BYTES = 3_000
PER_BATCH = 5


class Cloud:
    """A tunnel that may be down, and its receiver, with the rule of the real ones."""

    def __init__(self):
        self.is_up, self.sent, self.seen, self.features, self.gaps = False, [], {}, {}, 0
        self.downlink = self

    def send(self, frames):
        self.sent += [(number, frame) for _, number, frame in frames]

    def acks(self, _partition):
        if not self.is_up:
            return ()
        sent, self.sent = self.sent, []
        for _, frame in sent:
            for record in decode_body(decode_uplink(frame).body):
                seen = self.seen.setdefault(record.device_id, DeviceSeen())
                verdict, _ = seen.judge("one", record.sequence_number)
                self.gaps += verdict is Verdict.GAP
                if verdict is not Verdict.SEEN:
                    key = record.device_id, record.sequence_number
                    assert key not in self.features
                    self.features[key] = record.feature
        return [number for number, _ in sent]

    def receive(self, *_):
        return ()

    def release(self, *_):
        pass


class Device(Life):
    """A partition with a policy; a death forgets what was in memory."""

    def __init__(self, folder, cloud, **policy):
        super().__init__(folder, 30, 10**6, SequencePolicy(page_timeout_ms=50, out_of_order_ms=5))
        self.cloud, self.policy = cloud, OutboxPolicy(MAX_BYTES, **policy)

    def open(self):
        self.cloud.sent = []
        self.limited = LimitedTunnel(self.cloud, self.policy)
        return PartitionHost(
            PartitionSetup(
                0,
                self.plan,
                self.pool,
                lambda: PartitionRows(PartitionStore.open(self.folder / "rows")),
                lambda rows: UplinkSession(
                    self.limited, 0, rows.next_epoch(), "ab" * 8, rows.outbox()
                ),
                self.cloud,
            )
        )


def batches():
    events = make_events(11)
    last = (len(events) - 1) // PER_BATCH
    return [
        SourceBatch(
            0,
            EventBatch(events[number * PER_BATCH : (number + 1) * PER_BATCH]),
            b"%d" % (number + 1),
            SourceCounts(),
            [],
            is_end=number == last,
        )
        for number in range(last + 1)
    ]


def run(folder, cloud, deaths=(), goes_up_at=10**6, **policy):
    folder.mkdir()
    device = Device(folder, cloud, **policy)
    host = device.open()
    for number, batch in enumerate(batches()):
        cloud.is_up = number >= goes_up_at
        deliver(host, Delivery(batch, 0.0))
        if number in deaths:
            host.abandon()
            host = device.open()
    cloud.is_up = True
    host.close(float("inf"))
    rows = PartitionRows(PartitionStore.open(folder / "rows"))
    counters, outbox = rows.head().counters, rows.outbox()
    rows.close()
    assert outbox == []
    return counters


@pytest.fixture
def whole(tmp_path):
    cloud = Cloud()
    counters = run(tmp_path / "whole", cloud, goes_up_at=0)
    assert (counters.dropped_frames, cloud.gaps) == (0, 0)
    return cloud.features


@pytest.mark.parametrize("policy", [{"drops_oldest": True}, {"max_age_ms": 20}])
def test_what_is_not_sent_is_counted_and_the_rest_arrives(tmp_path, whole, policy):
    if "max_age_ms" in policy:
        policy["drops_oldest"] = True
    cloud = Cloud()
    counters = run(tmp_path / "down", cloud, **policy)
    assert counters.dropped_features > 0
    assert counters.features == len(whole)
    assert len(cloud.features) + counters.dropped_features == len(whole)
    assert cloud.features.items() <= whole.items()
    assert cloud.gaps > 0


@pytest.mark.parametrize("deaths", [{5}, {2, 3, 9}, set(range(30))])
@pytest.mark.parametrize("goes_up_at", [8, 10**6])
def test_a_death_doubles_nothing_and_what_comes_later_arrives(tmp_path, whole, deaths, goes_up_at):
    cloud = Cloud()
    counters = run(tmp_path / "killed", cloud, deaths, goes_up_at, drops_oldest=True)
    assert counters.features == len(whole)
    # after a death what was dropped and not yet counted may go after all
    assert cloud.features.items() <= whole.items()
    assert len(cloud.features) + counters.dropped_features <= len(whole)
    last = {device: max(n for name, n in whole if name == device) for device, _ in whole}
    assert {device: seen.last_numbers[-1] for device, seen in cloud.seen.items()} == last
