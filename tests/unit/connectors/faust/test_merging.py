import random

import pytest

from walle_connectors.faust.device_row import decode_row
from walle_connectors.faust.merging import Merger
from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import RecordEnvelope, encode_record


def record(number, device="d", partition=2, epoch=1, value=b'{"a":1}', **changed):
    envelope = RecordEnvelope(
        **{
            "device_id": device,
            "incarnation": "ab" * 8,
            "partition": partition,
            "epoch": epoch,
            "sequence_number": number,
            "task": "ipv",
            "task_version": "1",
            "event_time_ms": number,
            **changed,
        }
    )
    return encode_record(envelope, value)


@pytest.fixture
def merger():
    return Merger({}, {})


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
    stream = [record(number) for number in range(1, 30)]
    devices, epochs = Disk(), Disk()
    arrived, offset = {}, 0
    while offset < len(stream):
        merger = Merger(devices, epochs)
        end = min(len(stream), offset + chance.randint(1, 8))
        for place in range(offset, end):
            merger.merge(2, *stream[place])
        kept = chance.randint(0, len(devices.sent)) if end < len(stream) else len(devices.sent)
        arrived.update(devices.sent[:kept])
        offset = end if kept == len(devices.sent) else chance.randint(offset, offset + kept)
        devices.sent.clear()
        if chance.random() < 0.3:  # recovery may put an older row over the disk's
            dict.update(devices, arrived)
    naive = Merger({}, {})
    for each in stream:
        naive.merge(2, *each)
    assert arrived == naive._devices
