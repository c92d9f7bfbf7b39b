import pytest

from walle_connectors.embedded import CONNECTOR
from walle_stream.errors import FormatVersionError
from walle_stream.store.rocks import open_rocks
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body
from walle_stream.wire.numbering import Numbering


def frame(*records, epoch=1, incarnation="aa" * 8, partition=0):
    body = encode_body(
        [FeatureRecord(d, "t", "1", n, b'{"n":%d}' % n, b"") for d, n in records], "zstd"
    )
    return encode_uplink(UplinkEnvelope(partition, epoch, incarnation, 1, body))


def held(store):
    return [(r.device_id, r.sequence_number) for r in store.scan()]


def test_features_are_held_by_device_and_number(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("b", 1), ("a", 1))), (2, frame(("a", 2)))])
    assert held(store) == [("a", 1), ("a", 2), ("b", 1)]
    assert (store.position, store.stats.features, store.stats.devices) == (2, 3, 2)
    store.close()


def test_what_comes_twice_is_dropped_also_after_reopening(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("a", 1), ("a", 2)))])
    store.close()
    store = CONNECTOR.open_features(tmp_path / "c")
    stats = store.merge([(2, frame(("a", 1), ("a", 2), ("a", 3)))])
    assert held(store) == [("a", 1), ("a", 2), ("a", 3)]
    assert (stats.features, stats.duplicates_dropped) == (3, 2)
    store.close()


def test_an_older_owner_is_refused_and_a_gap_is_counted(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("a", 1), epoch=5))])
    stats = store.merge([(2, frame(("a", 2), epoch=4)), (3, frame(("a", 3), epoch=5))])
    assert held(store) == [("a", 1), ("a", 3)]
    assert (stats.frames_refused, stats.gaps) == (1, 1)
    store.close()


def test_a_reinstalled_device_is_not_swallowed(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("a", 1), ("a", 2)))])
    store.merge([(2, frame(("a", 1), incarnation="bb" * 8))])
    assert held(store) == [("a", 1), ("a", 2), ("a", 1)]
    store.close()


def test_garbage_is_counted_and_does_not_stop_the_rest(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    stats = store.merge([(1, b"garbage"), (2, frame(("a", 1)))])
    assert (held(store), stats.frames_refused, store.position) == ([("a", 1)], 1, 2)
    store.close()


def test_the_position_is_there_after_reopening(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(2, frame(("b", 1))), (7, frame(("a", 1), partition=3))])
    store.merge([])
    store.close()
    store = CONNECTOR.open_features(tmp_path / "c")
    assert store.position == store.durable_position() == 7
    store.close()


def test_a_table_of_another_format_is_refused_in_a_line(tmp_path):
    database = open_rocks(tmp_path / "c")
    database[b"\x00format"] = b"4"
    database.close()
    with pytest.raises(FormatVersionError, match="has format b'4', this version reads b'5'"):
        CONNECTOR.open_features(tmp_path / "c")


def test_a_call_keeps_the_partition_that_it_came_with(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    [body] = encode_calls([CloudCall("a", 1, "t", "1", "ask", b"{}")], "none")
    store.merge([(1, encode_uplink(UplinkEnvelope(5, 1, "aa" * 8, 1, body)))])
    [(_, call)] = store.open_calls(0, 9)
    assert (call.partition, call.call.device_id) == (5, "a")
    store.close()


def calls_frame(number, *calls):
    asked = [CloudCall(device, n, "t", "1", "ask", b"{}") for device, n in calls]
    [body] = encode_calls(asked, "none")
    return (number, encode_uplink(UplinkEnvelope(0, 1, "aa" * 8, number, body)))


def test_calls_are_opened_once_per_frame_and_again_by_a_later_frame(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([calls_frame(1, ("a", 1), ("a", 2)), calls_frame(1, ("a", 1), ("a", 2))])
    store.merge([calls_frame(1, ("a", 1), ("a", 2))])  # its acknowledgement was lost
    assert [call.call.number for _, call in store.open_calls(0, 9)] == [1, 2]
    for number in (1, 2):
        store.close_call(number)
    store.merge([calls_frame(2, ("a", 2))])  # its device has no reply
    assert [(n, call.call.number) for n, call in store.open_calls(0, 9)] == [(3, 2)]
    assert (store.stats.calls, store.stats.duplicates_dropped, store.stats.losses) == (3, 4, 0)
    store.close()


HOUR_MS = 3_600_000.0


def test_frames_may_be_forgotten_once_they_are_durable(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c", sync_ms=HOUR_MS)
    store.merge([(1, frame(("a", 1)))])
    store.settle()  # waits for the disk
    store.merge([(2, frame(("a", 2)))])
    assert (store.position, store.durable_position()) == (2, 1)
    store.settle()
    assert store.durable_position() == 2
    store.close()


def test_what_is_missing_is_counted_until_it_is_sent_again(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("a", 1), ("a", 4)))])
    assert (store.stats.gaps, store.stats.missing_features) == (1, 2)
    store.merge([(2, frame(("a", 2))), (3, frame(("a", 3), ("a", 3), ("a", 4)))])
    assert held(store) == [("a", number) for number in (1, 2, 3, 4)]
    assert (store.stats.losses, store.stats.features, store.stats.duplicates_dropped) == (0, 4, 2)
    store.close()


def test_another_feature_of_the_same_number_is_counted_and_replaces_the_first_one(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    store.merge([(1, frame(("a", 1)))])
    body = encode_body([FeatureRecord("a", "t", "1", 1, b'{"other":1}', b"")], "none")
    store.merge([(2, encode_uplink(UplinkEnvelope(0, 1, "aa" * 8, 1, body)))])
    assert [each.feature for each in store.scan()] == [b'{"other":1}']
    assert (store.stats.differing_features, store.stats.duplicates_dropped) == (1, 0)
    assert store.stats.features == 1
    store.close()


def test_a_feature_that_is_sent_again_without_its_time_is_the_same(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    for position, time_ms in enumerate((1_000, -1), 1):
        body = encode_body([FeatureRecord("a", "t", "1", 1, b"{}", b"", time_ms)], "none")
        store.merge([(position, encode_uplink(UplinkEnvelope(0, 1, "aa" * 8, position, body)))])
    assert (store.stats.differing_features, store.stats.duplicates_dropped) == (0, 1)
    store.close()


def test_frames_that_were_passed_over_are_counted_and_told_once(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")
    for number in (1, 2, 5, 3):
        envelope = UplinkEnvelope(0, 1, "aa" * 8, number, encode_body([], "none"))
        store.merge([(number, encode_uplink(envelope))])
    assert (store.stats.missing_frames, store.last_frame("aa" * 8, 0)) == (2, (1, 5))
    store.note_told(2)
    store.close()
    store = CONNECTOR.open_features(tmp_path / "c")
    assert (store.stats.losses, store.stats.told, store.last_frame("aa" * 8, 0)) == (2, 2, (1, 5))
    assert store.last_numbers("aa" * 8, ["nobody"]) == [0]
    store.close()


def test_frames_of_a_numbering_that_it_was_not_asked_about_are_refused(tmp_path):
    store = CONNECTOR.open_features(tmp_path / "c")

    def send(epoch, number, *numbering):
        body = encode_body([FeatureRecord("a", "t", "1", number, b"{}", b"")], "none")
        made = UplinkEnvelope(0, epoch, "aa" * 8, number, body, Numbering(*numbering))
        store.merge([(store.stats.frames + 1, encode_uplink(made))])
        return store.stats.frames_refused, store.last_frame("aa" * 8, 0)

    assert [send(1, number) for number in (1, 2)] == [(0, (1, 1)), (0, (1, 2))]
    # of another table that was lost: this one is a copy from before
    assert send(4, 1, 4, 1) == (1, (1, 2))
    assert send(4, 3, 4, 1) == (2, (1, 2))
    # asked, it was behind
    assert send(5, 3, 5, 3) == (2, (5, 3))
    store.close()
    store = CONNECTOR.open_features(tmp_path / "c")
    assert send(5, 4, 5, 3) == (2, (5, 4))
    assert store.stats.missing_frames == 0
    store.close()
