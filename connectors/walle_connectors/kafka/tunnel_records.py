"""Conversion of frames to records: one per feature or call, one for all reports of a frame.

``wire.record`` and ``wire.report_record`` define the format, and ``cloud.records`` decodes it.
"""

import logging
import re
from hashlib import blake2b
from typing import Any, Final

from walle_connectors.kafka.producing import TopicRecord
from walle_stream.errors import EnvelopeError
from walle_stream.wire.calls import CloudCall, decode_calls
from walle_stream.wire.envelope import UplinkEnvelope, decode_uplink
from walle_stream.wire.frame import FeatureRecord, decode_body
from walle_stream.wire.record import (
    RecordEnvelope,
    ValueFormat,
    encode_record,
)
from walle_stream.wire.report_record import (
    ReportRecord,
    encode_report_record,
    is_report_record,
)
from walle_stream.wire.reports import is_reports

_log = logging.getLogger(__name__)

_TRACE: Final = re.compile("00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")
_NAMED: Final = frozenset({"p", "n", "task"})


def frame_to_records(
    frame: bytes, value_format: ValueFormat = "json", *, has_trace: bool = False
) -> list[TopicRecord]:
    """Split an envelope into a record per feature or call, or one record for all reports.

    The records keep the frame's order. ``has_trace`` gives each of them a trace context.

    Raises:
        EnvelopeError: The frame is no valid envelope of ``walle_stream.wire``.
    """
    envelope = decode_uplink(frame)
    if is_reports(envelope.body):
        return [_report(envelope)]
    calls = decode_calls(envelope.body)
    if calls is not None:
        return [
            # unchanged from the script: a question is identified by its bytes
            _record(envelope, call.question, "json", has_trace, "", _call_fields(call))
            for call in calls
        ]
    return [
        _record(envelope, each.feature, value_format, has_trace, each.trace, _feature_fields(each))
        for each in decode_body(envelope.body)
    ]


def topic_record(head: RecordEnvelope, value: bytes, value_format: ValueFormat) -> TopicRecord:
    """Return the record of a JSON value, in JSON if ``value_format`` cannot express the value."""
    try:
        return TopicRecord(*encode_record(head, value, value_format))
    except EnvelopeError:
        # a guest made the value: leave it to its reader, since an error here would block all later
        # records
        return TopicRecord(*encode_record(head, value))


def record_name(record: TopicRecord) -> str:
    """Return the name of a record of ``frame_to_records`` for messages."""
    headers = {name: value.decode() for name, value in record.headers if name in _NAMED}
    if is_report_record(record.headers):
        return f"reports of partition {headers['p']}, number {headers['n']}"
    return f"device {(record.key or b'').decode()}, task {headers['task']}, number {headers['n']}"


def trace_parent(idempotency_key: str, parent: str = "") -> str:
    """Return a trace context (W3C Trace Context, level 1), the same for a repeated record.

    It is a span of the parent's trace if ``parent`` is valid.
    """
    digest = blake2b(idempotency_key.encode(), digest_size=24).hexdigest()
    found = _TRACE.fullmatch(parent)
    trace, flags = found.groups() if found else (digest[:32], "01")
    return f"00-{trace}-{digest[32:]}-{flags}"


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
    trace: str,
    fields: dict[str, Any],
) -> TopicRecord:
    head = RecordEnvelope(
        incarnation=envelope.incarnation,
        partition=envelope.partition,
        epoch=envelope.epoch,
        **fields,
    )
    if has_trace:
        head.trace_parent = trace_parent(head.idempotency_key, trace)
    return topic_record(head, value, value_format)


def _report(envelope: UplinkEnvelope) -> TopicRecord:
    record = ReportRecord(
        envelope.incarnation, envelope.partition, envelope.epoch, envelope.number, envelope.body
    )
    return TopicRecord(*encode_report_record(record))
