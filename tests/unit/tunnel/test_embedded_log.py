"""The embedded log forgets what was released, and never where it stands."""

import pytest

from walle_connectors.embedded import log
from walle_connectors.embedded.log import EmbeddedTunnel
from walle_stream.actors.cloud.cloud_actor import CloudActor
from walle_stream.cloud.frame_table import FrameTable
from walle_stream.store.rocks import open_rocks
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body


def positions(folder):
    database = open_rocks(folder)
    try:
        return [int.from_bytes(key[1:]) for key in database.keys() if key[:1] == b"\x01"]  # noqa: SIM118 - no dict
    finally:
        database.close()


def frame(number):
    body = encode_body([FeatureRecord("d", "t", "1", number, b"{}", b"")], "none")
    return encode_uplink(UplinkEnvelope(0, 1, "ab" * 8, number, body))


@pytest.fixture(params=["_DELETE_EVERY", "_DELETE_BYTES"])
def deletes_soon(request, monkeypatch):
    monkeypatch.setattr(log, request.param, 1)


def fill(folder, count):
    tunnel = EmbeddedTunnel(folder, 1 << 20)
    for number in range(1, count + 1):
        tunnel.send([(0, number, frame(number))])
    return tunnel


@pytest.mark.usefixtures("deletes_soon")
def test_rows_that_were_released_go_but_the_last_one_stays(tmp_path):
    tunnel = fill(tmp_path, 9)
    tunnel.release_up(5)
    assert [position for position, _ in tunnel.receive_up(0, 1 << 20)] == [6, 7, 8, 9]
    tunnel.release_up(9)
    tunnel.close()
    assert positions(tmp_path) == [9]
    tunnel = EmbeddedTunnel(tmp_path, 1 << 20)
    tunnel.send([(0, 10, frame(10))])
    assert [position for position, _ in tunnel.receive_up(9, 1 << 20)] == [10]
    tunnel.close()


@pytest.mark.usefixtures("deletes_soon")
def test_a_position_beyond_the_end_takes_no_more_than_there_is(tmp_path):
    tunnel = fill(tmp_path, 3)
    tunnel.release_up(1_000)
    tunnel.close()
    assert positions(tmp_path) == [3]


def test_few_rows_wait_to_be_deleted_with_others(tmp_path):
    tunnel = fill(tmp_path, 9)
    tunnel.release_up(9)
    assert tunnel.waiting_bytes == 0
    tunnel.close()
    assert positions(tmp_path) == list(range(1, 10))


def test_what_was_not_released_counts_after_a_new_opening(tmp_path):
    tunnel = fill(tmp_path, 9)
    waiting = tunnel.waiting_bytes
    tunnel.close()
    tunnel = EmbeddedTunnel(tmp_path, 1 << 20)
    assert tunnel.waiting_bytes == waiting > 0
    tunnel.close()


def test_the_cloud_side_releases_what_it_had_merged_before_a_death(tmp_path):
    tunnel = fill(tmp_path / "t", 9)
    store = FrameTable(tmp_path / "f")
    store.merge(tunnel.receiver.receive(0, 1 << 20))
    tunnel.close()
    tunnel = EmbeddedTunnel(tmp_path / "t", 1 << 20)
    CloudActor(
        store, tunnel.receiver, tunnel.downlink_sender, tunnel.downlink, tunnel.close
    ).on_start()
    assert tunnel.waiting_bytes == 0
    tunnel.close()
    store.close()


HOUR_MS = 3_600_000.0


def test_a_frame_is_neither_acknowledged_nor_seen_before_it_is_durable(tmp_path):
    tunnel = EmbeddedTunnel(tmp_path, 1 << 20, HOUR_MS)
    tunnel.send([(0, 1, frame(1))])
    tunnel.settle()
    tunnel.send([(0, 2, frame(2))])  # the next flush is in an hour
    assert list(tunnel.acks(0)) == [1]
    assert [position for position, _ in tunnel.receive_up(0, 1 << 20)] == [1]
    tunnel.settle()
    assert list(tunnel.acks(0)) == [2]
    assert [position for position, _ in tunnel.receive_up(0, 1 << 20)] == [1, 2]
    tunnel.close()


def test_a_message_is_not_seen_before_it_is_durable(tmp_path):
    tunnel = EmbeddedTunnel(tmp_path, 1 << 20, HOUR_MS)
    tunnel.send_down([(0, 1, b"m")])
    tunnel.settle()
    tunnel.send_down([(0, 2, b"m")])
    assert [position for position, _ in tunnel.receive_down(0, 0, 1 << 20)] == [1]
    tunnel.settle()
    assert [position for position, _ in tunnel.receive_down(0, 0, 1 << 20)] == [1, 2]
    tunnel.close()


def test_a_log_that_lost_its_end_gives_no_position_twice(tmp_path):
    tunnel = fill(tmp_path, 3)
    tunnel.release_up(7)  # as the table has merged
    tunnel.send([(0, 8, frame(8))])
    assert [position for position, _ in tunnel.receive_up(7, 1 << 20)] == [8]
    assert tunnel.receive_down(0, 5, 1 << 20) == ()  # as a partition has taken
    tunnel.send_down([(0, 1, b"m")])
    assert [position for position, _ in tunnel.receive_down(0, 5, 1 << 20)] == [6]
    tunnel.close()


@pytest.mark.usefixtures("deletes_soon")
@pytest.mark.parametrize(("merged", "given"), [(0, [10]), (3, [10]), (5, [6, 7, 8, 9, 10])])
def test_what_is_given_has_no_hole_also_to_a_copy_that_is_behind(tmp_path, merged, given):
    tunnel = fill(tmp_path, 9)
    tunnel.release_up(5)
    tunnel.close()
    tunnel = EmbeddedTunnel(tmp_path, 1 << 20)
    first = [position for position, _ in tunnel.receive_up(merged, 1 << 20)]
    tunnel.send([(0, 10, frame(10))])
    last = first[-1] if first else merged
    assert first + [position for position, _ in tunnel.receive_up(last, 1 << 20)] == given
    tunnel.release_up(10)
    assert tunnel.waiting_bytes == 0
    tunnel.close()
