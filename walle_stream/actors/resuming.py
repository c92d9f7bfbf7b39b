"""What a partition and the cloud side believe of each other, made equal at every opening.

Frames of a partition are numbered without holes. What was acknowledged is no more in the outbox:
so the cloud side holds all below the outbox, and nothing that was never made. Where a disk was
lost, a backup restored, or power cut with ``sync: false``, one of them has forgotten. Then the
outbox is made anew, in one commit: of the feature rows above what the cloud side has of each
device, and of what was in it besides; frames go on behind the last one that the cloud side has,
which drops what it knows. What cannot be made again is counted and told at the end of the run.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import batched
from typing import Final

from walle_stream.actors.partition_plan import PartitionPlan
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.wire.calls import decode_calls
from walle_stream.wire.frame import FeatureRecord, encode_body, split_records
from walle_stream.wire.reports import is_reports
from walle_stream.wire.rows import PartitionHead

_log = logging.getLogger(__name__)

_ASKED: Final = 1_000  # devices in one question


def resumed_head(
    rows: PartitionRows, plan: PartitionPlan, partition: int, incarnation: str
) -> PartitionHead:
    """Return the head from which a partition goes on: as committed, where nobody forgot; blocks.

    Args:
        rows: The partition's, nothing uncommitted.
        plan: Says who is asked, if anybody.
        partition: Which.
        incarnation: Of its devices.

    Raises:
        WalleError: The cloud side does not answer, or the store takes no commit.
    """
    head, holdings = rows.head(), plan.holdings
    if holdings is None:
        return head
    outbox = rows.outbox()
    made = head.next_frame - 1
    acknowledged = outbox[0][0] - 1 if outbox else made
    held = holdings.last_frame(incarnation, partition)
    if acknowledged <= held <= made:
        return head
    head = head.copied()
    kept = [body for _, body in outbox if _is_kept(body)]
    waiting = {call for body in kept for call in _calls_in(body)}
    records = _missing(rows, head, waiting, partial(holdings.last_numbers, incarnation))
    bodies = [encode_body(part, plan.compression) for part in split_records(records)] + kept
    frames = list(enumerate(bodies, held + 1))
    head.next_frame = held + 1 + len(frames)
    head.counters.resent_features += len(records)
    head.counters.forgotten_frames += max(held - made, 0)
    if plan.report_ms:
        head.counters.lost_reports += max(acknowledged - held, 0)
    rows.put_outbox((), [number for number, _ in outbox])
    rows.put_outbox(frames, ())
    rows.commit(head, rows.offset())
    rows.durability.wait()
    _log.info(
        "partition %d and the cloud side disagree after a power cut, or since a copy was restored: "
        "%s has forgotten %d frames, %d features are sent again",
        partition,
        "the partition" if held > made else "the cloud side",
        held - made if held > made else acknowledged - held,
        len(records),
    )
    return head


def _missing(
    rows: PartitionRows,
    head: PartitionHead,
    waiting: set[tuple[str, int]],
    last_numbers: Callable[[list[str]], Sequence[tuple[int, int]]],
) -> list[FeatureRecord]:
    # features that the cloud side lacks; calls that it will never answer are dropped
    counters, found = head.counters, list[FeatureRecord]()
    for devices in batched(rows.made(), _ASKED, strict=False):
        numbers = last_numbers([device_id for device_id, _, _ in devices])
        for (device_id, features, calls), (last, last_call) in zip(devices, numbers, strict=True):
            before = last
            for record in features:
                if record.sequence_number > before:
                    counters.lost_features += record.sequence_number - before - 1
                    before = record.sequence_number
                    found.append(record)
            for number in calls:
                if number > last_call and (device_id, number) not in waiting:
                    rows.take_call(device_id, number)
                    counters.lost_calls += 1
    return found


def _is_kept(body: bytes) -> bool:
    # features are made anew from their rows
    return is_reports(body) or decode_calls(body) is not None


def _calls_in(body: bytes) -> list[tuple[str, int]]:
    return [(call.device_id, call.number) for call in decode_calls(body) or ()]
