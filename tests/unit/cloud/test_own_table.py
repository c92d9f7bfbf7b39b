"""The cloud side of a partition, in the partition's own database."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION, call, frame, own_table

from walle_stream.cloud.own_table import OwnTable
from walle_stream.cloud.partition_table import features_in
from walle_stream.errors import FormatVersionError
from walle_stream.store.keys import CLOUD_PREFIX
from walle_stream.store.partition import PartitionStore
from walle_stream.wire.calls import encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink


def held(path):
    with PartitionStore.open(path, read_only=True) as store:
        features = features_in(store.space(CLOUD_PREFIX))
        return [(each.device_id, each.sequence_number) for each in features]


def test_features_are_held_by_device_and_number_beside_the_partition(tmp_path):
    with PartitionStore.open(tmp_path / "p") as store:
        transaction = store.begin()
        transaction.put(b"\x21x", b"of the partition")
        transaction.commit()
        table = OwnTable(store)
        table.merge([frame(("b", 1), ("a", 1)), frame(("a", 2), number=2)])
        assert (table.stats.features, table.stats.devices, table.stats.frames) == (3, 2, 2)
        assert held(tmp_path / "p") == [("a", 1), ("a", 2), ("b", 1)]
        assert list(store.scan(b"\x21")) == [(b"\x21x", b"of the partition")]
        table.close()


def test_what_comes_twice_is_dropped_also_after_reopening(tmp_path):
    with own_table(tmp_path / "p") as table:
        table.merge([frame(("a", 1), ("a", 2))])
    with own_table(tmp_path / "p") as table:
        table.merge([frame(("a", 1), ("a", 2), ("a", 3), number=2)])
        assert (table.stats.features, table.stats.duplicates_dropped) == (3, 2)
    assert held(tmp_path / "p") == [("a", 1), ("a", 2), ("a", 3)]


def test_a_reinstalled_device_is_not_swallowed(tmp_path):
    with own_table(tmp_path / "p") as table:
        table.merge([frame(("a", 1), ("a", 2)), frame(("a", 1), incarnation="bb" * 8)])
    assert held(tmp_path / "p") == [("a", 1), ("a", 2), ("a", 1)]


def test_garbage_is_counted_and_does_not_stop_the_rest(tmp_path):
    with own_table(tmp_path / "p") as table:
        table.merge([b"garbage", frame(("a", 1))])
        assert table.stats.frames_refused == 1
    assert held(tmp_path / "p") == [("a", 1)]


def test_a_table_of_another_format_is_refused_in_a_line(tmp_path):
    with PartitionStore.open(tmp_path / "p") as store:
        transaction = store.begin()
        transaction.put(CLOUD_PREFIX + b"\x00format", b"4")
        transaction.commit()
        with pytest.raises(FormatVersionError, match="has format b'4', this version reads b'6'"):
            OwnTable(store)


def calls_frame(number, *calls, partition=0):
    [body] = encode_calls([call(*each) for each in calls], "none")
    return encode_uplink(UplinkEnvelope(partition, 1, INCARNATION, number, body))


def test_a_call_keeps_the_partition_that_it_came_with(tmp_path):
    with own_table(tmp_path / "p") as table:
        table.merge([calls_frame(1, ("a", 1), partition=5)])
        [(_, opened)] = table.open_calls(0, 9)
        assert (opened.partition, opened.call.device_id) == (5, "a")


def test_calls_are_opened_once_per_frame_and_again_by_a_later_frame(tmp_path):
    with own_table(tmp_path / "p") as table:
        table.merge([calls_frame(1, ("a", 1), ("a", 2)), calls_frame(1, ("a", 1), ("a", 2))])
        assert [each.call.number for _, each in table.open_calls(0, 9)] == [1, 2]
        assert table.last_call == 2
    with own_table(tmp_path / "p") as table:
        assert (table.place.next, table.last_call) == (2, 2)
        table.merge([calls_frame(2, ("a", 3), ("a", 4), ("a", 5))])
        for number in (3, 4, 5):
            table.close_call(number)
    with own_table(tmp_path / "p") as table:
        assert (table.place.next, table.last_call) == (3, 5)  # more calls than frames
        for number in (1, 2):
            table.close_call(number)
    with own_table(tmp_path / "p") as table:
        table.merge([calls_frame(1, ("a", 1))])
        table.merge([calls_frame(3, ("a", 2))])
        assert [(n, each.call.number) for n, each in table.open_calls(0, 9)] == [(6, 2)]
        assert (table.stats.calls, table.stats.duplicates_dropped) == (6, 3)


def test_messages_go_down_in_order_and_their_positions_go_on(tmp_path):
    with own_table(tmp_path / "p") as table:
        assert not table.receive_down(0, 100)
        assert table.is_durable(table.send_down([b"one", b"two"]))
        table.send_down([b"three"])
        assert table.receive_down(0, 4) == [(1, b"one"), (2, b"two")]
        assert table.receive_down(2, 100) == [(3, b"three")]
        table.release_down(3)
        assert table.receive_down(0, 100) == [(3, b"three")]  # so that positions go on
    with own_table(tmp_path / "p") as table:
        table.send_down([b"four"])
        assert table.receive_down(3, 100) == [(4, b"four")]
        table.release_down(2)
        assert table.receive_down(0, 100) == [(3, b"three"), (4, b"four")]


def test_sinks_wait_for_a_snapshot_where_there_are_some(tmp_path):
    with own_table(tmp_path / "p", "s") as table:
        table.sink_log.hold(is_snapshot=False)
        table.merge([frame(("a", 1), ("a", 2))])
        assert (table.sink_log.ready, list(table.sink_log.rows("s"))) == (0, [])
        table.copied()
        table.merge([frame(("a", 3), number=2)])
        table.kept()
        assert [each.sequence_number for each in table.sink_log.rows("s")] == [1, 2]
    with own_table(tmp_path / "p", "s") as table:
        assert table.sink_log.ready == 3
        table.sink_log.hold(is_snapshot=False)
        assert table.sink_log.ready == 2
        table.sink_log.hold(is_snapshot=True)
    with own_table(tmp_path / "p", "s") as table:
        table.sink_log.hold(is_snapshot=False)
        assert table.sink_log.ready == 3
