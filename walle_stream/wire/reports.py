"""Reports of the results of tasks on devices, sent up beside features and calls.

A frame of reports is a body of version 5: behind the header of ``wire.payload`` a MessagePack
array of ``TaskReport``. Reports are counts, without any data of a feature, a page or a state.
Times and sizes travel as counts by bucket (``bucket_of``), so that millions of merged reports
give percentiles with a known error.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.buckets import BUCKET_MAX, CALL_BUCKETS, TIMED_MAX
from walle_stream.wire.payload import cut_items, decoded, pack_payload, unpack_payload

REPORTS_VERSION: Final = 5
FRAME_DEVICES: Final = 20_000
"""Largest number of devices in one frame; further devices go into another frame."""

REPORTS_MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest payload of reports that is unpacked."""

_CLASSES_MAX: Final = 64
_SIZE: Final = slice(2, 6)  # of the payload, in the header of ``wire.payload``

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_MaybeName = Annotated[str, msgspec.Meta(max_length=256)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, le=BUCKET_MAX)]
_Buckets = Annotated[dict[_Bucket, _Count], msgspec.Meta(max_length=BUCKET_MAX + 1)]
_Timed = Annotated[int, msgspec.Meta(ge=0, le=TIMED_MAX)]
_TimedBuckets = Annotated[dict[_Timed, _Count], msgspec.Meta(max_length=CALL_BUCKETS)]


class DeviceRuns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Results of one task on one device."""

    device_id: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    runs: _Count
    """All runs, failed ones included."""
    failures: Annotated[dict[_Name, _Count], msgspec.Meta(max_length=_CLASSES_MAX)] = {}
    """Failed runs by the error's class."""
    strikes: _Count = 0
    """Failed runs that had to be stopped."""
    crashes: _Count = 0
    """Failed runs that were refused, because the task is quarantined here: it ended a VM or
    a process, or was stopped too often."""
    receipt: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    """Unchanged receipt of a release service for this version; empty for none."""


class TaskReport(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Results of one version of one task on some devices in a span of time."""

    task: _Name
    version: _Name
    from_ms: _Time
    """Start of the span by the host's wall clock; the span ends before ``to_ms``."""
    to_ms: _Time
    devices: Annotated[list[DeviceRuns], msgspec.Meta(max_length=FRAME_DEVICES)]
    latency_us: _TimedBuckets = {}
    """Runs by bucket of their time in microseconds and of the size of their call
    (``timed_bucket``). The time of a run is the call's time divided by its runs."""
    output_bytes: _Buckets = {}
    """Successful runs by bucket of their emitted bytes plus 1."""
    release: _MaybeName = ""
    """Release in the receipts of all these devices; empty for none."""
    group: _MaybeName = ""
    """Group of that release in the receipts; a report never mixes devices of two groups."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[TaskReport]).decode


def encode_reports(reports: Iterable[TaskReport], compression: str) -> Iterator[bytes]:
    """Encode reports, each of at most ``FRAME_DEVICES`` devices, into bodies, usually one."""
    found = list(reports)
    for part in cut_items(found, [len(report.devices) for report in found], FRAME_DEVICES):
        yield pack_payload(REPORTS_VERSION, _encode(part), compression)


def is_reports(body: bytes) -> bool:
    """Return whether a body claims to hold reports."""
    return body[:1] == bytes((REPORTS_VERSION,))


def claimed_bytes(body: bytes) -> int:
    """Return the inflated size that a body of reports claims; 0 for other bodies."""
    return int.from_bytes(body[_SIZE], "little") if is_reports(body) else 0


def decode_reports(body: bytes) -> list[TaskReport]:
    """Decode an untrusted body; the inverse of ``encode_reports``.

    Raises:
        EnvelopeError: The body is truncated, altered, too large, of another version, or has
            impossible counts, such as more failures than runs.
    """
    size = claimed_bytes(body)
    if size > REPORTS_MAX_BYTES:
        raise EnvelopeError(
            f"a frame of reports claims {size} bytes, at most {REPORTS_MAX_BYTES} are allowed"
        )
    reports = decoded(_decode, unpack_payload(REPORTS_VERSION, body), "a frame of reports")
    for report in reports:
        _check(report)
    return reports


def _check(report: TaskReport) -> None:
    runs = 0
    for device in report.devices:
        failed = sum(device.failures.values())
        if failed > device.runs or device.strikes + device.crashes > failed:
            raise EnvelopeError(
                f"a report of {report.task}@{report.version} counts {device.runs} runs of device "
                f"{device.device_id[:64]!r}, {failed} failures, {device.strikes} strikes and "
                f"{device.crashes} crashes: each can be no more than the one before"
            )
        runs += device.runs
    if any(bucket % CALL_BUCKETS > BUCKET_MAX for bucket in report.latency_us):
        raise EnvelopeError("a frame of reports is malformed: a time in no bucket")
    counted = max(sum(report.latency_us.values()), sum(report.output_bytes.values()))
    if counted > runs or report.to_ms < report.from_ms:
        raise EnvelopeError(
            f"a report of {report.task}@{report.version} times {counted} of {runs} runs from "
            f"{report.from_ms} to {report.to_ms}"
        )
