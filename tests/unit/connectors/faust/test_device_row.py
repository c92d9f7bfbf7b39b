import random

import msgspec
import pytest

from walle_connectors.faust.device_row import (
    ROW_MAX_BYTES,
    DeviceRow,
    chain_digest,
    decode_row,
    encode_row,
)
from walle_stream.errors import FormatVersionError, StoreCorruptedError
from walle_stream.tunnel.receiver import Verdict
from walle_stream.wire.record import RecordEnvelope


def envelope(number, incarnation="ab" * 8, task="ipv", **changed):
    fields = {
        "device_id": "d",
        "incarnation": incarnation,
        "partition": 0,
        "epoch": 1,
        "sequence_number": number,
        "task": task,
        "task_version": "1",
        "event_time_ms": 1_000 + number,
    }
    return RecordEnvelope(**{**fields, **changed})


def merged(*numbers, keep=3, **changed):
    row = DeviceRow()
    for number in numbers:
        row.merge(envelope(number, **changed), b'{"n":%d}' % number, keep)
    return row


def test_a_record_that_comes_again_changes_nothing():
    row = merged(1, 2)
    before = encode_row(row)
    assert row.merge(envelope(2), b'{"n":2}', 3) is Verdict.SEEN
    assert row.merge(envelope(1), b'{"other":1}', 3) is Verdict.SEEN
    assert encode_row(row) == before


def test_the_latest_of_each_task_are_kept_and_all_are_counted():
    row = merged(1, 2, 3, 4, 5)
    row.merge(envelope(6, task="other"), b"{}", 3)
    assert [each.sequence_number for each in row.latest["ipv"]] == [3, 4, 5]
    assert [each.sequence_number for each in row.latest["other"]] == [6]
    assert row.counts == [6]


def test_the_digest_is_that_of_all_features_whatever_is_kept():
    assert merged(1, 2, 3, keep=1).digests == merged(1, 2, 3, keep=9).digests
    by_hand = b""
    for number in (1, 2, 3):
        by_hand = chain_digest(by_hand, envelope(number), b'{"n":%d}' % number)
    assert merged(1, 2, 3).digests == [by_hand]


@pytest.mark.parametrize(
    "other",
    [
        merged(1, 2),
        merged(1, 3),
        merged(1, 2, 3, task="x"),
        merged(1, 2, 3, task_version="2"),
        merged(1, 2, 3, encoding=b"x"),
        merged(1, 2, 3, event_time_ms=5),
    ],
)
def test_another_history_has_another_digest(other):
    assert other.digests != merged(1, 2, 3).digests


def test_a_reinstalled_device_begins_again():
    row = merged(1, 2, 3)
    assert row.merge(envelope(1, incarnation="cd" * 8), b"{}", 3) is Verdict.NEW
    assert row.counts == [3, 1]
    assert row.seen.last_numbers == [3, 1]


def test_a_gap_is_counted_and_let_through():
    row = merged(1, 4)
    assert (row.gaps, row.counts) == (1, [2])


@pytest.mark.parametrize("row", [DeviceRow(), merged(1), merged(*range(1, 60), keep=50)])
def test_a_row_survives_the_table(row):
    assert decode_row(encode_row(row)) == row


def test_many_features_are_compressed():
    row = merged(*range(1, 60), keep=50)
    assert len(encode_row(row)) < len(msgspec.msgpack.encode(row)) / 2


def heavy(number, size_bytes, task):
    noise = random.Random(f"{task}{number}").randbytes(size_bytes // 2).hex()
    return envelope(number, task=task), b'"%s"' % noise.encode()


def test_a_row_fits_into_a_record_whatever_is_kept():
    row, other = DeviceRow(), DeviceRow()
    for number in range(1, 13):
        made = heavy(number, 300_000, "map" if number < 12 else "ipv")
        row.merge(*made, 50)
        value = encode_row(row)
        assert len(value) <= ROW_MAX_BYTES
        assert decode_row(value) == row
        assert row.latest[made[0].task][-1].sequence_number == number
        other.merge(*made, 1)
    assert (row.counts, row.digests) == (other.counts, other.digests)
    assert len(row.latest["map"]) > 1


def test_a_feature_that_is_larger_than_a_row_is_counted_alone():
    row = merged(1)
    row.merge(*heavy(2, 3 * ROW_MAX_BYTES, "map"), 50)
    encode_row(row)
    assert (row.counts, row.seen.last_numbers) == ([2], [2])
    assert (list(row.latest), row.latest["ipv"][0].sequence_number) == (["ipv"], 1)


def test_features_that_are_all_alike_do_not_fill_the_memory():
    row = DeviceRow()
    for number in range(1, 81):
        row.merge(envelope(number, task=f"t{number}"), b'"%s"' % (b"a" * 1_000_000), 50)
        value = encode_row(row)
    assert len(msgspec.msgpack.encode(decode_row(value))) <= 64 * 2**20
    assert row.counts == [80]


def test_no_row_is_an_empty_one():
    assert decode_row(None) == DeviceRow()


def test_a_row_of_a_newer_version_is_refused():
    with pytest.raises(FormatVersionError, match="layout 09"):
        decode_row(b"\x09abc")


@pytest.mark.parametrize("value", [b"\x01", b"\x02", b"\x01\xff\xff", b"\x02abc"])
def test_a_damaged_row_is_refused(value):
    with pytest.raises(StoreCorruptedError, match="damaged"):
        decode_row(value)


def test_a_look_up_shows_the_newest_first_and_features_as_json():
    row = merged(1, 2)
    row.merge(envelope(3, task="other", encoding=b"\x00"), b"{}", 3)
    shown = msgspec.json.decode(msgspec.json.encode(row.to_builtins("d")))
    assert [each["feature"] for each in shown["tasks"]["ipv"]] == [{"n": 2}, {"n": 1}]
    assert shown["tasks"]["other"][0]["encoding"] == "AA=="
    assert shown["incarnations"][0]["features"] == 3
    assert list(row.to_builtins("d", task="other")["tasks"]) == ["other"]
