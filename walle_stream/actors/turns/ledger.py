"""Entries of a commit in the ledger of bytes; pure, run by the partition host.

Always: each task's share of the commit's frames. On request: the bytes that the batch's raw rows
would need in a frame of their own, and those of each task's features or encodings alone. This costs
the compression of every raw row.
"""

from collections.abc import Iterable, Sequence

import msgspec

from walle_stream.wire.calls import CALLS_VERSION, CloudCall
from walle_stream.wire.envelope import uplink_size_bytes
from walle_stream.wire.frame import BODY_VERSION, FeatureRecord, encode_body, split_records
from walle_stream.wire.ledger import Ledger, TaskBytes, shares_of
from walle_stream.wire.payload import pack_payload


class RawRows(msgspec.Struct):
    """Raw rows of a commit's batches, from sources that keep them."""

    parts: list[bytes] = []
    rows: int = 0
    size_bytes: int = 0
    """Size of the rows in the source."""


def book_sent(
    records: Sequence[FeatureRecord], calls: Sequence[CloudCall], bodies: Iterable[bytes]
) -> Ledger:
    """Return each task's share of the frames of a commit."""
    totals = {BODY_VERSION: 0, CALLS_VERSION: 0}
    for body in bodies:
        totals[body[0]] += uplink_size_bytes(body)
    features: dict[str, list[int]] = {}
    for record in records:
        sums = features.get(record.task)
        if sums is None:
            sums = features[record.task] = [0, 0, 0]
        sums[0] += 1
        sums[1] += len(record.feature)
        sums[2] += len(record.encoding)
    questions: dict[str, list[int]] = {}
    for call in calls:
        sums = questions.setdefault(call.task, [0, 0])
        sums[0] += 1
        sums[1] += len(call.question)
    shares = shares_of(
        totals[BODY_VERSION], [size for sums in features.values() for size in sums[1:]]
    )
    ledger = Ledger(
        {
            task: TaskBytes(
                features=count,
                feature_bytes=feature_bytes,
                encoding_bytes=encoding_bytes,
                sent_feature_bytes=shares[2 * index],
                sent_encoding_bytes=shares[2 * index + 1],
            )
            for index, (task, (count, feature_bytes, encoding_bytes)) in enumerate(features.items())
        }
    )
    if not questions:
        return ledger
    shares = shares_of(totals[CALLS_VERSION], [size for _, size in questions.values()])
    return ledger.plus(
        Ledger(
            {
                task: TaskBytes(calls=count, question_bytes=size, sent_call_bytes=share)
                for (task, (count, size)), share in zip(questions.items(), shares, strict=True)
            }
        )
    )


def book_measured(
    sent: Ledger, raw: RawRows, records: Sequence[FeatureRecord], compression: str
) -> Ledger:
    """Measure alternatives to the bytes sent by a commit; compresses everything again.

    Returns the entries to add to ``sent``. Without raw rows, only the frames are measured. Raw rows
    are always compressed with zstd.
    """
    by_task: dict[str, list[FeatureRecord]] = {}
    for record in records:
        by_task.setdefault(record.task, []).append(record)
    measured = {
        task: TaskBytes(
            measured_sent_bytes=sums.sent_bytes,
            feature_alone_bytes=_framed(
                [_record_with(one, one.feature, b"") for one in by_task.get(task, ())], compression
            ),
            encoding_alone_bytes=_framed(
                [
                    _record_with(one, b"", one.encoding)
                    for one in by_task.get(task, ())
                    if one.encoding
                ],
                compression,
            ),
        )
        for task, sums in sent.tasks.items()
    }
    if not raw.parts:
        return Ledger(measured)
    packed = uplink_size_bytes(pack_payload(BODY_VERSION, b"".join(raw.parts), "zstd"))
    return Ledger(measured, raw.rows, raw.size_bytes, packed)


def _record_with(record: FeatureRecord, feature: bytes, encoding: bytes) -> FeatureRecord:
    return FeatureRecord(
        record.device_id,
        record.task,
        record.task_version,
        record.sequence_number,
        feature,
        encoding,
        record.event_time_ms,
    )


def _framed(records: Sequence[FeatureRecord], compression: str) -> int:
    return sum(uplink_size_bytes(encode_body(part, compression)) for part in split_records(records))
