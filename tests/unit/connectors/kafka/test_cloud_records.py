import msgspec
import pytest

from walle_connectors.kafka.cloud.records import read_stretches
from walle_connectors.kafka.source.fetching import Records
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


def record(number=1, value=b'{"a":1}', value_format="json", **changed):
    changed = {"sequence_number": number, "event_time_ms": number, **changed}
    return encode_record(msgspec.structs.replace(ENVELOPE, **changed), value, value_format)


def read(*given, partition=2):
    keys, values, headers = zip(*given, strict=True)
    places = range(10, 10 + len(given))
    records = Records(places, [0] * len(given), keys, values, headers)
    return read_stretches("t", partition, records)


def test_records_of_one_sender_that_follow_each_other_are_a_stretch():
    found, refused = read(
        record(1), record(2, device_id="e"), record(3, epoch=2), record(4, incarnation="cd" * 8)
    )
    assert refused == []
    assert [(each.incarnation[:2], each.partition, each.epoch) for each in found] == [
        ("ab", 2, 1),
        ("ab", 2, 2),
        ("cd", 2, 1),
    ]
    first, second = found[0].records
    assert (first.device_id, first.sequence_number, second.device_id) == ("d", 1, "e")
    assert (first.task, first.task_version, first.event_time_ms) == ("ipv", "1", 1)
    assert (first.feature, first.encoding) == (b'{"a":1}', b"")


def test_calls_and_reports_stand_between_features_in_their_order():
    [body] = encode_reports([TaskReport("t", "1", 0, 1, [DeviceRuns("d", 1, {})])], "none")
    report = encode_report_record(ReportRecord("ab" * 8, 2, 1, 7, body))
    found, refused = read(record(1), record(1, service="rank"), report, record(2))
    assert refused == []
    shapes = [(len(each.records), len(each.calls), len(each.reports)) for each in found]
    assert shapes == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]
    assert (found[2].reports[0].number, found[2].reports[0].body) == (7, body)


@pytest.mark.parametrize("value_format", ["msgpack", "compact"])
def test_values_become_json(value_format):
    [found], _ = read(record(value_format=value_format))
    assert found.records[0].feature == b'{"a":1}'


def refusal(given, partition=2):
    found, [refused] = read(record(1), given, record(2), partition=partition)
    assert sum(len(each.records) for each in found) == 2
    return refused


@pytest.mark.parametrize("value", [b"{", b"", b'"\xff"', b"[" * 100_000])
def test_a_value_that_is_no_json_is_refused(value):
    refused = refusal(record(value=value))
    assert "not JSON" in refused.letter.reason
    assert (refused.offset, refused.letter.origin) == (11, "t[2]@11")
    assert (refused.letter.route, refused.letter.task) == ("invalid", "ipv")


@pytest.mark.parametrize("device", ["", "a\0b", "d" * 2_000])
def test_what_nobody_could_look_up_is_no_device(device):
    assert "key is no device: the device id" in refusal(record(device_id=device)).letter.reason


@pytest.mark.parametrize("incarnation", ["", "ab" * 7, "AB" * 8, "ab" * 45_000])
def test_an_incarnation_is_16_hexadecimal_digits(incarnation):
    refused = refusal(record(incarnation=incarnation))
    assert "is not 16 hexadecimal digits" in refused.letter.reason


def test_a_number_below_one_is_refused():
    assert "numbers begin at 1" in refusal(record(0)).letter.reason


def test_a_record_in_another_partition_is_refused():
    refused = refusal(record(partition=7))
    assert "sent by partition 7, but found in partition 2" in refused.letter.reason
    assert (refused.letter.route, refused.letter.device_id) == ("invalid", "d")
    assert (refused.letter.holds, refused.letter.record) == ("feature", b'{"a":1}')


def test_reports_in_another_partition_are_refused():
    [body] = encode_reports([TaskReport("t", "1", 0, 1, [DeviceRuns("d", 1, {})])], "none")
    refused = refusal(encode_report_record(ReportRecord("ab" * 8, 3, 1, 7, body)))
    assert "sent by partition 3, but found in partition 2" in refused.letter.reason


@pytest.mark.parametrize(
    "given", [(None, b"{}", ()), (b"d", None, ()), (b"d", b"{}", ()), (b"\xff", b"{}", ())]
)
def test_what_is_no_record_is_refused(given):
    assert refusal(given).letter.route == "decode"


@pytest.mark.parametrize("time_ms", [-(2**63), 2**63 - 1])
def test_numbers_of_64_bits_are_kept_as_they_are(time_ms):
    [found], _ = read(record(2**63 - 1, event_time_ms=time_ms))
    kept = found.records[0]
    assert (kept.sequence_number, kept.event_time_ms) == (2**63 - 1, time_ms)
