import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_connectors.faust.device_row import INCARNATIONS_MAX, ROW_MAX_BYTES, decode_row
from walle_connectors.faust.merging import Merger, latest_epoch
from walle_stream.errors import EnvelopeError, EpochOverError
from walle_stream.ports import ReportFrame
from walle_stream.wire.record import RecordEnvelope, encode_record
from walle_stream.wire.report_record import ReportRecord, encode_report_record
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

ENVELOPE = RecordEnvelope(
    device_id="d",
    incarnation="ab" * 8,
    partition=2,
    epoch=1,
    sequence_number=1,
    task="ipv",
    task_version="1",
    event_time_ms=1,
)


def record(number, device="d", value=b'{"a":1}', **changed):
    changed = {"sequence_number": number, "event_time_ms": number, "device_id": device, **changed}
    return encode_record(msgspec.structs.replace(ENVELOPE, **changed), value)


class InOrder(Merger):
    """Each record comes from the next offset."""

    offset = -1

    def merge(self, partition, key, value, headers):
        self.offset += 1
        super().merge(partition, key, value, headers, self.offset)

    def take_report(self, partition, key, value, headers):
        self.offset += 1
        return super().take_report(partition, key, value, headers, self.offset)


@pytest.fixture
def merger():
    return InOrder({}, {})


def refused(merger, number, match, partition=2, **changed):
    before = dict(merger._devices), dict(merger._epochs), merger.counts.refused
    with pytest.raises(EnvelopeError, match=match):
        merger.merge(partition, *record(number, **changed))
    assert (merger._devices, merger._epochs, merger.counts.refused - 1) == before


def test_features_are_merged_and_duplicates_dropped(merger):
    for number in (1, 2, 2, 1, 3):
        merger.merge(2, *record(number))
    assert merger.counts.features == 3
    assert merger.counts.duplicates_dropped == 2
    assert decode_row(merger._devices[b"d"]).counts == [3]


def test_an_older_epoch_is_refused(merger):
    merger.merge(2, *record(1, epoch=5))
    refused(merger, 2, "epoch 4 of partition 2 is over", epoch=4)
    merger.merge(2, *record(2, epoch=5))
    merger.merge(2, *record(3, epoch=6))
    refused(merger, 4, "6 was seen", epoch=5)


def test_epochs_are_those_of_a_partition_and_an_incarnation(merger):
    merger.merge(2, *record(1, epoch=5))
    merger.merge(3, *record(1, device="e", partition=3, epoch=1))
    merger.merge(2, *record(1, epoch=1, incarnation="cd" * 8))
    assert merger.counts.features == 3


def test_a_record_in_another_partition_is_refused(merger):
    with pytest.raises(EnvelopeError, match="sent by partition 7, but found in 2"):
        merger.merge(2, *record(1, partition=7))
    assert merger._devices == {}


def test_a_number_below_one_is_refused(merger):
    refused(merger, 0, "numbers begin at 1")


@pytest.mark.parametrize("device", ["", "__faust\0offset__", "d" * 2_000])
def test_what_nobody_could_look_up_is_no_device(merger, device):
    refused(merger, 1, "a record's key is no device: the device id", device=device)


@pytest.mark.parametrize("time_ms", [-(2**63), 2**63 - 1])
def test_numbers_of_64_bits_are_kept_as_they_are(merger, time_ms):
    merger.merge(2, *record(2**63 - 1, event_time_ms=time_ms))
    [kept] = decode_row(merger._devices[b"d"]).latest["ipv"]
    assert (kept.sequence_number, kept.event_time_ms) == (2**63 - 1, time_ms)


@pytest.mark.parametrize("incarnation", ["", "ab" * 7, "AB" * 8, "ab" * 45_000])
def test_an_incarnation_is_16_hexadecimal_digits(merger, incarnation):
    refused(merger, 1, "is not 16 hexadecimal digits", incarnation=incarnation)


def test_a_device_has_so_many_incarnations(merger):
    for number in range(INCARNATIONS_MAX):
        merger.merge(2, *record(1, incarnation=f"{number:016x}"))
    refused(merger, 1, "one more than the 1000 of a device", incarnation="f" * 16)
    merger.merge(2, *record(2, incarnation=f"{0:016x}"))
    assert merger.counts.features == INCARNATIONS_MAX + 1
    assert len(merger._devices[b"d"]) < ROW_MAX_BYTES / 10


def test_a_row_of_an_earlier_version_that_grew_too_large_refuses(merger):
    row = decode_row(None)
    for number in range(20):
        name = random.Random(number).randbytes(45_000).hex()
        row.merge(msgspec.structs.replace(ENVELOPE, incarnation=name), b"{}", 1)
    merger._devices[b"d"] = b"\x01" + msgspec.msgpack.encode(row)
    refused(merger, 1, "the device's row takes [0-9]+ bytes without its features")


def test_a_value_that_is_no_json_is_refused(merger):
    refused(merger, 1, "no JSON", value=b"{")


@pytest.mark.parametrize(
    "given", [(None, b"{}", ()), (b"d", None, ()), (b"d", b"{}", ()), (b"\xff", b"{}", ())]
)
def test_what_is_no_record_is_refused(merger, given):
    with pytest.raises(EnvelopeError):
        merger.merge(2, *given)
    assert merger.counts.refused == 1


def test_calls_are_counted_and_take_no_number(merger):
    merger.merge(2, *record(1, service="rank"))
    merger.merge(2, *record(1))
    assert (merger.counts.calls_unanswered, merger.counts.features) == (1, 1)


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.booleans()), max_size=20),
)
def test_spans_that_are_delivered_again_in_any_order_count_once(spans):
    """Senders and consumers go back to anything they are not sure of, and go on from there."""
    merger, last = InOrder({}, {}), 0
    for first, count, has_new_owner in spans:
        begin = min(first, last + 1)  # a device's records are in the topic without a hole
        for number in range(begin, begin + count):
            merger.merge(2, *record(number, epoch=2 if has_new_owner else 1, value=b"%d" % number))
        last = max(last, begin + count - 1)
        if has_new_owner:
            break  # what its past owner still sends is refused, see above
    plain = InOrder({}, {})
    for number in range(1, last + 1):
        plain.merge(2, *record(number, value=b"%d" % number))
    assert merger._devices == plain._devices
    assert merger.counts.gaps == 0


class Disk(dict):
    """A table on disk with its changelog: what is sent may be cut off by a kill."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.sent.append((key, value))


@pytest.mark.parametrize("seed", range(30))
def test_killed_anywhere_the_changelog_gets_every_feature(seed):
    # a kill keeps the disk as it is, a part of what was sent, and the committed offset,
    # which is never ahead of what was sent
    chance = random.Random(seed)
    stream = [record(number, epoch=1 + number // 6) for number in range(1, 30)]
    devices, epochs = Disk(), Disk()
    arrived, offset = {}, 0
    while offset < len(stream):
        merger = Merger(devices, epochs)
        end = min(len(stream), offset + chance.randint(1, 8))
        for place in range(offset, end):
            merger.merge(2, *stream[place], place)
        kept = chance.randint(0, len(devices.sent)) if end < len(stream) else len(devices.sent)
        arrived.update(devices.sent[:kept])
        offset = end if kept == len(devices.sent) else chance.randint(offset, offset + kept)
        devices.sent.clear()
        if chance.random() < 0.3:  # recovery may put an older row over the disk's
            dict.update(devices, arrived)
        elif chance.random() < 0.3:  # on another disk; the other table's changelog is ahead
            devices.clear()
            dict.update(devices, arrived)
    naive = InOrder({}, {})
    for each in stream:
        naive.merge(2, *each)
    assert arrived == naive._devices


def test_a_record_that_comes_again_is_judged_by_what_was_before_it():
    # the new owner's epoch is in the changelog, the old one's row was cut off by a kill
    epochs = {}
    before = Merger({}, epochs)
    before.merge(2, *record(1, epoch=1), 10)
    before.merge(2, *record(2, epoch=5), 11)
    after = Merger({}, epochs)
    after.merge(2, *record(1, epoch=1), 10)
    after.merge(2, *record(2, epoch=5), 11)
    assert (after.counts.features, after.counts.gaps) == (2, 0)
    with pytest.raises(EnvelopeError, match="5 was seen"):
        after.merge(2, *record(3, epoch=1), 12)
    # what was refused is refused again
    with pytest.raises(EnvelopeError, match="5 was seen"):
        Merger({}, epochs).merge(2, *record(3, epoch=1), 12)


def test_rows_of_epochs_of_an_earlier_version_hold():
    epochs = {b"ab" * 8 + b"/2": b"5"}
    merger = Merger({}, epochs)
    with pytest.raises(EnvelopeError, match="5 was seen"):
        merger.merge(2, *record(1, epoch=4), 0)
    merger.merge(2, *record(1, epoch=6), 1)
    assert latest_epoch(b"5") == 5
    [row] = epochs.values()
    assert latest_epoch(row) == 6


def test_only_the_latest_epochs_are_kept():
    epochs = {}
    merger = Merger({}, epochs)
    for number in range(1, 100):
        merger.merge(2, *record(number, epoch=number), number)
    [row] = epochs.values()
    assert row.split()[0::31] == [b"68@68", b"99@99"]


def reports(number, epoch=1, partition=2):
    [body] = encode_reports([TaskReport("s/t", "1", 0, 1, [DeviceRuns("d", 1)])], "none")
    made = ReportRecord(ENVELOPE.incarnation, partition, epoch, number, body)
    return encode_report_record(made), ReportFrame(ENVELOPE.incarnation, partition, number, body)


def test_reports_are_given_on_and_merge_nothing(merger):
    merger.merge(2, *record(1))
    rows = dict(merger._devices)
    for number in (4, 9, 9):
        made, frame = reports(number)
        assert merger.take_report(2, *made) == frame
    assert (merger.counts.reports, merger.counts.features, merger.counts.gaps) == (3, 1, 0)
    assert merger._devices == rows


def test_reports_of_an_older_owner_or_another_partition_are_refused(merger):
    merger.take_report(2, *reports(1, epoch=5)[0])
    with pytest.raises(EpochOverError, match="number 2: epoch 4 of partition 2 is over"):
        merger.take_report(2, *reports(2, epoch=4)[0])
    refused(merger, 1, "epoch 4 of partition 2 is over", epoch=4)
    with pytest.raises(EnvelopeError, match="sent by partition 3, but found in 2"):
        merger.take_report(2, *reports(1, partition=3)[0])
    assert (merger.counts.reports, merger.counts.refused) == (1, 3)


def test_who_reads_features_alone_takes_no_report_for_one(merger):
    with pytest.raises(EnvelopeError, match="envelope version 2, this side reads 1"):
        merger.merge(2, *reports(1)[0])
