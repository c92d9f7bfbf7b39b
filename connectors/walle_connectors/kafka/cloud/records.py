"""Decoding of a tunnel topic's records into stretches of one sender each. No I/O."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import structs

from walle_connectors.kafka.source.fetching import Records
from walle_stream.cloud.merging import Stretch
from walle_stream.errors import EnvelopeError
from walle_stream.ports import DeadLetter, DeadLetterRoute, ReportFrame
from walle_stream.reading import record_dead_letter
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.frame import FeatureRecord
from walle_stream.wire.record import RecordEnvelope, decode_record
from walle_stream.wire.report_record import decode_report_record, is_report_record

_skip_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Refused(NamedTuple):
    """An invalid record."""

    offset: int
    letter: DeadLetter


def read_stretches(
    topic: str, partition: int, records: Records
) -> tuple[list[Stretch], list[Refused]]:
    """Decode untrusted records of one partition, with headers, into stretches and refused records.

    Both lists keep the records' order.
    """
    found: list[Stretch] = []
    refused: list[Refused] = []
    sender: tuple[str, int, int] | None = None
    features: list[FeatureRecord] = []
    numbers: list[int] = []
    for offset, key, value, headers in zip(
        records.offsets, records.keys, records.values, records.headers, strict=True
    ):
        try:
            alone, feature, of = _read(partition, offset, key, value, headers)
        except EnvelopeError as error:
            origin = f"{topic}[{partition}]@{offset}"
            refused.append(Refused(offset, _letter(origin, key, value, headers, error)))
            continue
        if feature is None:
            found.append(alone)
            sender = None
            continue
        if of != sender:
            sender, features, numbers = of, [], []
            found.append(Stretch(*of, records=features, numbers=numbers))
        features.append(feature)
        numbers.append(offset)
    return found, refused


_NOTHING: Final = Stretch("", 0, 0)


def _read(
    partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Sequence[Any]
) -> tuple[Stretch, FeatureRecord | None, tuple[str, int, int]]:
    # returns a feature and its sender, or a stretch that stands alone
    if is_report_record(headers):
        report = decode_report_record(key, value, headers)
        of = report.incarnation, report.partition, report.epoch
        _check_place(partition, report.partition, f"reports, number {report.number}")
        frame = ReportFrame(report.incarnation, report.partition, report.number, report.body)
        return Stretch(*of, reports=(frame,)), None, of
    envelope, feature = decode_record(key, value, headers)
    of = envelope.incarnation, envelope.partition, envelope.epoch
    if envelope.partition != partition or envelope.sequence_number < 1:
        name = _name(envelope)
        _check_place(partition, envelope.partition, name)
        raise EnvelopeError(f"{name}: numbers begin at 1")
    try:
        _skip_json(feature)
        feature.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError(f"{_name(envelope)}: the value is not JSON: {error}") from error
    if envelope.service:
        number, asked = envelope.sequence_number, (envelope.task, envelope.task_version)
        call = CloudCall(envelope.device_id, number, *asked, envelope.service, feature)
        return Stretch(*of, calls=(call,), numbers=(offset,)), None, of
    record = FeatureRecord(
        envelope.device_id,
        envelope.task,
        envelope.task_version,
        envelope.sequence_number,
        feature,
        envelope.encoding,
        envelope.event_time_ms,
    )
    return _NOTHING, record, of


def _name(envelope: RecordEnvelope) -> str:
    return f"device {envelope.device_id!r}, number {envelope.sequence_number}"


def _check_place(partition: int, sent_by: int, name: str) -> None:
    if sent_by != partition:
        # the topic's partition orders and fences the records of its sender
        raise EnvelopeError(
            f"{name}: sent by partition {sent_by}, but found in partition {partition} of the "
            "topic: topic and sender have different numbers of partitions"
        )


def _letter(
    origin: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Any],
    error: EnvelopeError,
) -> DeadLetter:
    # device and task as the record states them, where it can be decoded
    device_id, task, route = (key or b"").decode(errors="replace"), "", "decode"
    try:
        envelope, _ = decode_record(key, value, headers)
        device_id, task, route = envelope.device_id, envelope.task, "invalid"
    except EnvelopeError:
        pass
    made = record_dead_letter(
        value or b"",
        route=cast("DeadLetterRoute", route),
        reason=str(error),
        origin=origin,
        device_id=device_id,
        error=type(error).__name__,
    )
    return structs.replace(made, task=task, holds="feature")
