"""A partition and a cloud side of which one has forgotten: what is sent again, what is lost."""

from types import SimpleNamespace

import pytest

from walle_connectors.embedded import CONNECTOR
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.resuming import resumed_head
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body
from walle_stream.wire.rows import PartitionHead

pytestmark = pytest.mark.actors

INCARNATION = "ab" * 8


class Pair:
    """A partition's rows and the cloud side's table, with what is between them."""

    def __init__(self, folder):
        self.store = PartitionStore.open(folder / "00")
        self.rows = PartitionRows(self.store)
        self.cloud = CONNECTOR.open_features(folder / "cloud")
        self.head = PartitionHead()

    def make(self, *numbers, feature=b"{}", device="d", is_arriving=True, is_acknowledged=True):
        """A commit of features, a frame of them."""
        records = [FeatureRecord(device, "t", "1", n, feature, b"") for n in numbers]
        self._commit(encode_body(records, "none"), is_arriving, is_acknowledged, records)

    def ask(self, number, *, is_arriving=True, is_acknowledged=True):
        call = CloudCall("d", number, "t", "1", "service", b"{}")
        [body] = encode_calls([call], "none")
        self.head.counters.calls += 1
        self.rows.put_call("d", number, ("t", "name", "service"))
        self._commit(body, is_arriving, is_acknowledged, ())

    def _commit(self, body, is_arriving, is_acknowledged, records):
        number, self.head.next_frame = self.head.next_frame, self.head.next_frame + 1
        self.rows.put_features(records)
        self.rows.put_outbox([] if is_acknowledged else [(number, body)], ())
        self.rows.commit(self.head, b"offset")
        if is_arriving:
            self.send([(number, body)])

    def send(self, frames):
        self.cloud.merge(
            [
                (0, number, encode_uplink(UplinkEnvelope(3, 1, INCARNATION, number, body)))
                for number, body in frames
            ]
        )

    def open(self, report_ms=0):
        """What an opening does: compares, and sends the outbox."""
        plan = SimpleNamespace(holdings=self.cloud, report_ms=report_ms, compression="none")
        self.head = resumed_head(self.rows, plan, 3, INCARNATION)
        self.send(self.rows.outbox())
        return self.head

    @property
    def held(self):
        return [(each.device_id, each.sequence_number, each.feature) for each in self.cloud.scan()]

    def close(self):
        self.rows.close()
        self.cloud.close()


@pytest.fixture
def pair(tmp_path):
    opened = Pair(tmp_path)
    yield opened
    opened.close()


def test_where_nobody_forgot_nothing_is_written(pair):
    pair.make(1, 2)
    pair.make(3, is_arriving=False, is_acknowledged=False)
    before = pair.head
    assert pair.open() == before
    assert [number for _, number, _ in pair.held] == [1, 2, 3]
    assert pair.cloud.stats.losses == 0


def test_what_the_cloud_side_forgot_is_sent_again(pair):
    pair.make(1, 2)
    pair.make(3, is_arriving=False)
    pair.make(1, device="other", is_arriving=False)
    pair.make(4, is_arriving=False, is_acknowledged=False)
    head = pair.open()
    assert [(device, number) for device, number, _ in pair.held] == [
        *[("d", number) for number in (1, 2, 3, 4)],
        ("other", 1),
    ]
    assert (head.counters.resent_features, head.counters.losses) == (3, 0)
    assert (pair.cloud.stats.gaps, pair.cloud.stats.losses) == (0, 0)
    assert pair.open() == head  # both agree from now on


def test_all_of_a_lost_disk_is_sent_again(pair, tmp_path):
    for number in range(1, 30):
        pair.make(number)
    pair.cloud.close()
    pair.cloud = CONNECTOR.open_features(tmp_path / "new")
    assert pair.open().counters.resent_features == 29
    assert len(pair.held) == 29
    assert pair.cloud.stats.losses == 0


def test_a_feature_that_the_device_has_no_more_is_counted(pair):
    pair.make(1)
    pair.make(3, is_arriving=False)  # nothing has number 2
    head = pair.open()
    assert (head.counters.resent_features, head.counters.lost_features) == (1, 1)
    assert pair.cloud.stats.missing_features == 1


def test_a_call_that_was_forgotten_is_lost_and_waited_for_no_more(pair):
    pair.ask(1)
    pair.ask(2, is_arriving=False)
    pair.ask(3, is_arriving=False, is_acknowledged=False)
    head = pair.open()
    assert head.counters.lost_calls == 1
    assert [call for _, _, calls in pair.rows.made() for call in calls] == [1, 3]
    assert pair.cloud.stats.calls == 2


def test_frames_that_may_have_been_reports_are_counted_where_there_are_any(pair):
    pair.make(1, is_arriving=False)
    pair.make(2, is_arriving=False)
    assert pair.open(report_ms=1_000).counters.lost_reports == 2


def test_a_partition_that_forgot_goes_on_behind_what_the_cloud_side_has(pair):
    pair.make(1, 2)
    pair.send(
        [
            (n, encode_body([FeatureRecord("d", "t", "1", n + 1, b"{}", b"")], "none"))
            for n in (2, 3)
        ]
    )
    head = pair.open()
    assert (head.next_frame, head.counters.forgotten_frames) == (4, 2)
    pair.make(3)  # as its source gives it again
    assert pair.cloud.stats.losses == 0
    pair.make(4, feature=b'{"other":1}')
    assert pair.cloud.stats.differing_features == 1
    assert [number for _, number, _ in pair.held] == [1, 2, 3, 4]
