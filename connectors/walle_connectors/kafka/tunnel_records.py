"""Frames as records of a topic, and records as frames again.

On the way up a frame is one record per feature or call (``wire.record``); the cloud
side gets frames again, of records that follow each other and have one sender, owner
and kind. How they are cut need not be how they were sent. A frame of reports is one
record (``wire.report_record``), and the same frame again.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from walle_stream.errors import EnvelopeError
from walle_stream.wire.calls import CloudCall, decode_calls, encode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_uplink, encode_uplink
from walle_stream.wire.frame import FeatureRecord, decode_body, encode_body
from walle_stream.wire.headers import Headers
from walle_stream.wire.record import (
    RecordEnvelope,
    ValueFormat,
    decode_record,
    encode_record,
)
from walle_stream.wire.report_record import (
    ReportRecord,
    decode_report_record,
    encode_report_record,
    is_report_record,
)
from walle_stream.wire.reports import is_reports

_log = logging.getLogger(__name__)

FRAME_MAX_BYTES: Final = 1024 * 1024
"""Values beyond this go into the next frame of the cloud side."""

_NAMED: Final = frozenset({"p", "n", "task"})


class TopicRecord(NamedTuple):
    """One record on its way up."""

    key: bytes
    value: bytes
    headers: Headers


def frame_to_records(
    frame: bytes, value_format: ValueFormat = "json", *, has_trace: bool = False
) -> list[TopicRecord]:
    """Cut a frame into records.

    Args:
        frame: An envelope of ``walle_stream.wire``.
        value_format: What features travel as.
        has_trace: Whether records get a trace context.

    Returns:
        One per feature or call, in the frame's order; one for all reports.

    Raises:
        EnvelopeError: It is none.
    """
    envelope = decode_uplink(frame)
    if is_reports(envelope.body):
        return [_report(envelope)]
    calls = decode_calls(envelope.body)
    if calls is not None:
        return [
            _record(envelope, call.question, value_format, has_trace, _call_fields(call))
            for call in calls
        ]
    return [
        _record(envelope, each.feature, value_format, has_trace, _feature_fields(each))
        for each in decode_body(envelope.body)
    ]


def record_name(record: TopicRecord) -> str:
    """Return how a record is called in what is said of it.

    Args:
        record: Of ``frame_to_records``.
    """
    headers = {name: value.decode() for name, value in record.headers if name in _NAMED}
    if is_report_record(record.headers):
        return f"reports of partition {headers['p']}, number {headers['n']}"
    return f"device {record.key.decode()}, task {headers['task']}, number {headers['n']}"


def trace_parent(idempotency_key: str) -> str:
    """Return a trace context (W3C Trace Context, level 1) that a repeated record has again."""
    digest = blake2b(idempotency_key.encode(), digest_size=24).hexdigest()
    return f"00-{digest[:32]}-{digest[32:]}-01"


def records_to_frames(records: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
    """Put records of one partition of the topic together to frames.

    Args:
        records: As kafka-python's consumer gives them, in order.

    Yields:
        (position, envelope): the position is one behind the last record's offset. What
        cannot be read becomes a frame that no receiver takes, so that it is counted there.
    """
    group: list[tuple[RecordEnvelope, bytes]] = []
    head: tuple[Any, ...] = ()
    position = size_bytes = 0
    for record in records:
        found, alone = _read(record)
        sender = _sender(found[0]) if found else ()
        if group and (sender != head or size_bytes > FRAME_MAX_BYTES):
            yield position, _frame(group)
            group, size_bytes = [], 0
        position = record.offset + 1
        if found:
            head = sender
            group.append(found)
            size_bytes += len(found[1]) + len(found[0].encoding)
        else:
            yield position, alone
    if group:
        yield position, _frame(group)


def _read(record: Any) -> tuple[tuple[RecordEnvelope, bytes] | None, bytes]:
    # of a frame with others; or none, and a frame by itself: empty for what cannot be read
    try:
        if is_report_record(record.headers):
            of = decode_report_record(record.key, record.value, record.headers)
            place = UplinkEnvelope(of.partition, of.epoch, of.incarnation, of.number, of.body)
            return None, encode_uplink(place)
        return decode_record(record.key, record.value, record.headers), b""
    except EnvelopeError as error:
        text = "record %s/%d@%d is refused: %s"
        _log.warning(text, record.topic, record.partition, record.offset, error)
        return None, b""


def _feature_fields(record: FeatureRecord) -> dict[str, Any]:
    return {
        "device_id": record.device_id,
        "sequence_number": record.sequence_number,
        "task": record.task,
        "task_version": record.task_version,
        "event_time_ms": record.event_time_ms,
        "encoding": record.encoding,
    }


def _call_fields(call: CloudCall) -> dict[str, Any]:
    return {
        "device_id": call.device_id,
        "sequence_number": call.number,
        "task": call.task,
        "task_version": call.task_version,
        "event_time_ms": -1,
        "service": call.service,
    }


def _record(
    envelope: UplinkEnvelope,
    value: bytes,
    value_format: ValueFormat,
    has_trace: bool,
    fields: dict[str, Any],
) -> TopicRecord:
    head = RecordEnvelope(
        incarnation=envelope.incarnation,
        partition=envelope.partition,
        epoch=envelope.epoch,
        **fields,
    )
    if has_trace:
        head.trace_parent = trace_parent(head.idempotency_key)
    try:
        return TopicRecord(*encode_record(head, value, value_format))
    except EnvelopeError:
        # a guest made it: what it is the cloud side sees; here it would stop the partition
        return TopicRecord(*encode_record(head, value))


def _report(envelope: UplinkEnvelope) -> TopicRecord:
    record = ReportRecord(
        envelope.incarnation, envelope.partition, envelope.epoch, envelope.number, envelope.body
    )
    return TopicRecord(*encode_report_record(record))


def _sender(envelope: RecordEnvelope) -> tuple[Any, ...]:
    is_call = bool(envelope.service)
    return envelope.incarnation, envelope.partition, envelope.epoch, is_call


def _frame(group: Sequence[tuple[RecordEnvelope, bytes]]) -> bytes:
    first = group[0][0]
    if first.service:
        calls = [
            CloudCall(
                each.device_id,
                each.sequence_number,
                each.task,
                each.task_version,
                each.service,
                value,
            )
            for each, value in group
        ]
        body = b"".join(encode_calls(calls, "none"))
    else:
        records = [
            FeatureRecord(
                each.device_id,
                each.task,
                each.task_version,
                each.sequence_number,
                value,
                each.encoding,
                each.event_time_ms,
            )
            for each, value in group
        ]
        body = encode_body(records, "none")
    number = first.sequence_number  # of frames only their sender knows the number
    return encode_uplink(
        UplinkEnvelope(first.partition, first.epoch, first.incarnation, number, body)
    )
