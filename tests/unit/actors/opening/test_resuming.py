"""A partition and a cloud side of which one has forgotten: what is sent again, what is lost."""

from types import SimpleNamespace

import pytest

from tests.unit.actors.parts.test_calls import taking
from walle_connectors.embedded import CONNECTOR
from walle_stream.actors.cloud.cloud_actor import CloudActor, Drain
from walle_stream.actors.cloud.holdings import CloudHoldings
from walle_stream.actors.opening.resuming import resumed_head
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.cloud.service_pool import Served
from walle_stream.store.partition import PartitionStore
from walle_stream.stream.commands import REPLY_POSITION
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body
from walle_stream.wire.numbering import FIRST_NUMBERING
from walle_stream.wire.rows import PartitionHead

pytestmark = pytest.mark.actors

INCARNATION = "ab" * 8


class Pair:
    """A partition's rows and the cloud side's table, with what is between them."""

    def __init__(self, folder):
        self.store = PartitionStore.open(folder / "00")
        self.rows = PartitionRows(self.store)
        self.epoch = self.rows.next_epoch()
        self.head = PartitionHead()
        self.asked, self._asking = [], []  # keys and questions of the last answers
        self.tunnel = None
        self.open_cloud(folder)

    def open_cloud(self, folder):
        """With what is in a folder, nothing if it is new."""
        self.cloud = CONNECTOR.open_features(folder / "cloud")
        self.open_tunnel(folder)

    def open_tunnel(self, folder):
        if self.tunnel is not None:
            self.tunnel.close()
        self.tunnel = CONNECTOR.open_tunnel(folder / "tunnel", 1 << 20)
        ends = (self.tunnel.receiver, self.tunnel.downlink_sender, self.tunnel.downlink)
        self.actor = CloudActor(
            self.cloud, *ends, self.tunnel.close, {"service": Served(self._serve)}
        )

    def _serve(self, call):
        self._asking.append((call.key, call.question))
        return call.question

    def answer(self):
        """The cloud side answers all that waits there; returns what the service was asked."""
        while self.cloud.open_calls(0, 1):
            self.actor.on_message(Drain())
        # some may have been answered as soon as they arrived
        self.asked, self._asking = self._asking, []
        return sorted(question["n"] for _, question in self.asked)

    def take(self):
        """The partition takes what came down; returns the numbers of the replies."""
        told = taking(self.rows, self.tunnel.downlink, number=3, tasks=["t"])(self.head)
        self.rows.commit(self.head, b"offset")
        return [each.position - REPLY_POSITION for each in told]

    def make(self, *numbers, feature=b"{}", device="d", is_arriving=True, is_acknowledged=True):
        """A commit of features, a frame of them."""
        records = [FeatureRecord(device, "t", "1", n, feature, b"") for n in numbers]
        self._commit(encode_body(records, "none"), is_arriving, is_acknowledged, records)

    def ask(self, number, question=None, *, is_arriving=True, is_acknowledged=True):
        """A commit of a call, a frame of it."""
        asked = b'{"n":%d}' % (number if question is None else question)
        call = CloudCall("d", number, "t", "1", "service", asked)
        [body] = encode_calls([call], "none")
        self.head.counters.calls += 1
        self.rows.put_call("name", call)
        self._commit(body, is_arriving, is_acknowledged, ())

    def _commit(self, body, is_arriving, is_acknowledged, records):
        number, self.head.next_frame = self.head.next_frame, self.head.next_frame + 1
        self.rows.put_features(records)
        self.rows.put_outbox([] if is_acknowledged else [(number, body)], ())
        self.rows.commit(self.head, b"offset")
        if is_arriving:
            self.send([(number, body)])

    def send(self, frames, numbering=None):
        sender = 3, self.epoch, INCARNATION
        for number, body in frames:
            envelope = UplinkEnvelope(*sender, number, body, numbering or self.head.numbering)
            self.cloud.merge([(number, encode_uplink(envelope))])

    def acknowledge(self):
        """The tunnel has taken all of the outbox."""
        self.rows.put_outbox((), [number for number, _ in self.rows.outbox()])
        self.rows.commit(self.head, b"offset")

    def open(self, report_ms=0):
        """What an opening does: compares, and sends the outbox."""
        holdings = CloudHoldings(self.actor.on_message)
        plan = SimpleNamespace(holdings=holdings, report_ms=report_ms, compression="none")
        self.head, seen_epoch = resumed_head(self.rows, plan, 3, INCARNATION)
        self.epoch = self.rows.next_epoch(seen_epoch + 1)
        self.send(self.rows.outbox())
        return self.head

    @property
    def held(self):
        return [(each.device_id, each.sequence_number, each.feature) for each in self.cloud.scan()]

    @property
    def waiting(self):
        return [call.number for call in self.rows.calls()]

    def close(self):
        self.rows.close()
        self.tunnel.close()
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
    pair.open_cloud(tmp_path / "new")
    assert pair.open().counters.resent_features == 29
    assert len(pair.held) == 29
    assert pair.cloud.stats.losses == 0


def test_a_feature_that_the_device_has_no_more_is_counted(pair):
    pair.make(1)
    pair.make(3, is_arriving=False)  # nothing has number 2
    head = pair.open()
    assert (head.counters.resent_features, head.counters.lost_features) == (1, 1)
    assert pair.cloud.stats.missing_features == 1


def test_a_call_that_the_cloud_side_forgot_is_sent_again(pair):
    pair.ask(1)
    pair.ask(2, is_arriving=False)
    pair.ask(3, is_arriving=False, is_acknowledged=False)
    head = pair.open()
    assert (head.counters.resent_calls, head.counters.losses) == (2, 0)
    assert pair.answer() == [1, 2, 3]
    assert (pair.take(), pair.waiting) == ([1, 2, 3], [])


def test_calls_on_their_way_are_not_sent_again(pair):
    pair.ask(1)  # its reply is in the tunnel
    pair.answer()
    pair.ask(2)  # waits in the cloud
    pair.ask(3, is_acknowledged=False)  # arrived, but nobody was told
    pair.ask(4, is_arriving=False, is_acknowledged=False)  # waits in the outbox
    before = pair.head
    assert pair.open() == before
    assert pair.answer() == [2, 3, 4]
    assert (pair.take(), pair.waiting) == ([1, 2, 3, 4], [])
    assert pair.open().counters.resent_calls == 0


def test_a_call_whose_reply_the_tunnel_forgot_is_sent_again(pair, tmp_path):
    pair.ask(1)
    pair.answer()
    pair.open_tunnel(tmp_path / "new")
    keys = [key for key, _ in pair.asked]
    assert pair.open().counters.resent_calls == 1
    assert pair.answer() == [1]
    assert [key for key, _ in pair.asked] == keys
    assert (pair.take(), pair.waiting) == ([1], [])


def test_a_reply_at_a_position_that_was_taken_before_is_sent_again(pair, tmp_path):
    pair.ask(1)
    pair.answer()
    assert pair.take() == [1]
    pair.ask(2)
    pair.open_tunnel(tmp_path / "new")  # it counts from 1 again
    pair.answer()
    assert pair.open().counters.resent_calls == 1
    assert pair.answer() == [2]
    assert (pair.take(), pair.waiting) == ([2], [])


def forget(pair, tmp_path):
    """The partition is as it was at its beginning; its source gives all again."""
    pair.rows.close()
    pair.rows = PartitionRows(PartitionStore.open(tmp_path / "old"))
    assert pair.open().counters.forgotten_frames > 0


def test_a_call_that_a_partition_makes_again_is_answered_again(pair, tmp_path):
    pair.ask(1)
    pair.answer()
    keys = [key for key, _ in pair.asked]
    assert pair.take() == [1]
    pair.tunnel.downlink.release(3, pair.head.downlink_position)
    pair.ask(2)
    pair.answer()  # the tunnel releases the first reply with the last one alone
    forget(pair, tmp_path)
    pair.ask(1)
    assert pair.answer() == [1]
    assert [key for key, _ in pair.asked] == keys
    assert (pair.take(), pair.waiting) == ([1], [])
    assert pair.cloud.stats.losses == 0


def test_a_reply_to_another_question_of_that_number_is_dropped(pair, tmp_path):
    pair.ask(1, question=7)
    pair.answer()
    forget(pair, tmp_path)
    pair.ask(1, question=8)  # a reply came at another moment
    assert (pair.take(), pair.waiting) == ([], [1])
    assert pair.answer() == [8]
    assert (pair.take(), pair.waiting) == ([1], [])


def test_frames_that_may_have_been_reports_are_counted_where_there_are_any(pair):
    pair.make(1, is_arriving=False)
    pair.make(2, is_arriving=False)
    assert pair.open(report_ms=1_000).counters.lost_reports == 2


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_frame_is_counted_as_lost_once_whatever_copy_is_put_back(pair, tmp_path, more):
    for number in (1, 2, 3):
        pair.make(number)
    older = pair.cloud
    pair.open_cloud(tmp_path / "new")
    assert pair.open(report_ms=1_000).counters.lost_reports == 3
    pair.acknowledge()
    for number in range(more):
        pair.make(4 + number)
    pair.cloud.close()
    pair.cloud = older  # it lacks nothing of the first three
    pair.open_tunnel(tmp_path / "other")
    for _ in range(3):
        head = pair.open(report_ms=1_000)
        # the first frame of the new numbering had features sent again, the others may be reports
        assert head.counters.lost_reports == 3 + more
        assert head.counters.resent_features == 3 + more
        pair.acknowledge()
    pair.make(9)
    assert pair.open(report_ms=1_000) == head
    assert (pair.cloud.stats.frames_refused, len(pair.held)) == (0, 3 + more + 1)


def test_an_opening_that_died_before_it_sent_anything_counts_nothing_twice(pair, tmp_path):
    pair.make(1)
    pair.make(3, is_arriving=False)  # nothing has number 2
    holdings = CloudHoldings(pair.actor.on_message)
    plan = SimpleNamespace(holdings=holdings, report_ms=1_000, compression="none")
    first, _ = resumed_head(pair.rows, plan, 3, INCARNATION)
    assert (first.counters.lost_reports, first.counters.lost_features) == (1, 1)
    assert pair.open(report_ms=1_000) == first
    assert [number for _, number, _ in pair.held] == [1, 3]


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


def test_a_partition_that_forgot_once_sends_all_to_a_copy_of_the_cloud_side(pair, tmp_path):
    pair.make(1)
    made = ((1, b"{}"), (2, b'{"first":1}'))
    frames = [
        (n, encode_body([FeatureRecord("d", "t", "1", n, feature, b"")], "none"))
        for n, feature in made
    ]
    pair.send(frames[1:])
    pair.open()
    pair.make(2, feature=b'{"again":1}')
    pair.make(3)
    assert pair.cloud.stats.differing_features == 1
    pair.cloud.close()
    pair.open_cloud(tmp_path / "copy")  # with what the cloud side had before
    pair.send(frames, FIRST_NUMBERING)
    assert pair.open().counters.resent_features == 3
    assert [feature for _, _, feature in pair.held] == [b"{}", b'{"again":1}', b"{}"]
    assert pair.cloud.stats.differing_features == 1


def test_a_partition_that_forgot_an_opening_sends_all(pair):
    pair.make(1, 2, feature=b'{"mine":1}')
    pair.epoch += 1  # of another copy, whose frame has the number of one of these
    pair.send([(1, encode_body([FeatureRecord("d", "t", "1", 2, b"{}", b"")], "none"))])
    pair.make(3, is_arriving=False)
    pair.epoch += 1
    pair.send([(2, encode_body([FeatureRecord("d", "t", "1", 3, b'{"its":1}', b"")], "none"))])
    assert pair.open().counters.resent_features == 3
    assert [feature for _, _, feature in pair.held] == [b'{"mine":1}', b'{"mine":1}', b"{}"]
    pair.make(4)
    assert pair.open().counters.resent_features == 3


def test_a_copy_of_the_cloud_side_with_older_numbers_is_sent_what_it_lacks(pair, tmp_path):
    for number in (1, 2, 3):
        pair.make(number)
    older = pair.cloud
    pair.open_cloud(tmp_path / "new")
    assert pair.open().counters.resent_features == 3
    pair.make(4)
    pair.make(5)
    pair.cloud.close()
    pair.cloud, pair.actor = older, pair.actor
    pair.open_tunnel(tmp_path / "other")
    head = pair.open()
    assert head.counters.resent_features == 3 + 2
    assert [number for _, number, _ in pair.held] == [1, 2, 3, 4, 5]
    assert pair.cloud.stats.losses == 0
