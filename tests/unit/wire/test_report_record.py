"""Frames of reports as records of a topic: read by anyone, taken for nothing else."""

import pytest

from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import RecordEnvelope, decode_record, encode_record
from walle_stream.wire.report_record import (
    ReportRecord,
    decode_report_record,
    encode_report_record,
    is_report_record,
)
from walle_stream.wire.reports import DeviceRuns, TaskReport, encode_reports

[BODY] = encode_reports([TaskReport("s/t", "1", 0, 1, [DeviceRuns("d", 1)])], "none")
RECORD = ReportRecord("ab" * 8, 3, 2, 17, BODY)
STORED = (
    b"abababababababab/3",
    BODY,
    [
        ("v", b"2"),
        ("kind", b"reports"),
        ("inc", b"abababababababab"),
        ("p", b"3"),
        ("ep", b"2"),
        ("n", b"17"),
    ],
)
"""As version 2 stands in topics; it must stay readable."""


def test_a_record_is_what_is_stored_and_read_again():
    assert encode_report_record(RECORD) == STORED
    assert decode_report_record(*STORED) == RECORD
    assert decode_report_record(*STORED[:2], [*STORED[2], ("later", b"\xff")]) == RECORD


def test_a_feature_is_no_report_and_a_report_no_feature():
    fields = {"incarnation": "ab" * 8, "partition": 3, "epoch": 1, "sequence_number": 1}
    made = RecordEnvelope(
        device_id="d", task="kind", task_version="reports", event_time_ms=1, **fields
    )
    feature = encode_record(made, b"{}")
    assert not is_report_record(feature[2])
    assert is_report_record(STORED[2])
    with pytest.raises(EnvelopeError, match="envelope version 2, this side reads 1"):
        decode_record(*STORED)
    with pytest.raises(EnvelopeError, match="envelope version 1, this side reads 2"):
        decode_report_record(*feature)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"v": b"3"}, "envelope version 3"),
        ({"n": None}, "lacks the header 'n'"),
        ({"n": b"-1"}, "'n' is no number"),
        ({"n": b"9000000000000000000"}, "is no number"),
        ({"p": b"4"}, "is not that of incarnation 'abababababababab', partition 4"),
        ({"key": b"zz/3", "inc": b"zz"}, "is not 16 hexadecimal digits"),
        ({"key": b"abababababababab/9999999999", "p": b"9999999999"}, "'p' is no number"),
        ({"key": None}, "has no key"),
        ({"value": None}, "has no value"),
        ({"value": b'{"a":1}'}, "its 7 bytes are no reports of this version"),
    ],
)
def test_what_no_sender_makes_is_refused(changed, match):
    key, value, headers = STORED
    given = {"key": key, "value": value, **dict(headers), **changed}
    key, value = given.pop("key"), given.pop("value")
    with pytest.raises(EnvelopeError, match=match):
        decode_report_record(key, value, [each for each in given.items() if each[1] is not None])
