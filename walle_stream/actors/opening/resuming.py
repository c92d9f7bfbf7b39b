"""What a partition and the cloud side believe of each other, made equal at every opening.

Frames of a partition are numbered without holes. What was acknowledged is no more in the outbox:
so the cloud side holds all below the outbox, and nothing that was never made. Each opening has an
epoch: the cloud side has seen none that the partition does not know, and none from before its
frames were last numbered anew. Where a disk was lost, a backup restored, or power cut with
``sync: false``, one of them has forgotten, or has another history of the same numbers. Then the
outbox is made anew, in one commit: of the feature rows above what the cloud side has of each
device (all, where the partition has forgotten once), and of what was in it besides; frames go on
behind the last one that the cloud side has, which drops what it knows. What cannot be made again
is counted and told at the end of the run.

A call is a row until its reply is taken. One that is not in the outbox, does not wait in the cloud
and has no reply in the tunnel was forgotten by one of the three, whatever their frames say: it is
sent again, and answered again. So none is ever lost, and none waits for ever.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import batched
from typing import Final, NamedTuple

from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.wire.calls import CloudCall, decode_calls, encode_calls
from walle_stream.wire.frame import FeatureRecord, encode_body, split_records
from walle_stream.wire.numbering import Numbering
from walle_stream.wire.reports import is_reports
from walle_stream.wire.rows import PartitionHead

_log = logging.getLogger(__name__)

_ASKED: Final = 1_000  # devices in one question


def resumed_head(
    rows: PartitionRows, plan: PartitionPlan, partition: int, incarnation: str
) -> tuple[PartitionHead, int]:
    """Return the head from which a partition goes on: as committed, where nobody forgot; blocks.

    What is sent again is in the outbox then. With the head comes the highest epoch that the cloud
    side has seen of the partition; 0 for none. Nothing of the rows is uncommitted.

    Raises:
        WalleError: The cloud side does not answer, or the store takes no commit.
    """
    head, holdings = rows.head(), plan.holdings
    if holdings is None:
        return head, 0
    outbox = rows.outbox()
    sides = _compare(rows, head, outbox, holdings.last_frame(incarnation, partition))
    unseen = [body for number, body in outbox if sides.is_agreed and number > sides.held]
    calls = _forgotten_calls(
        rows,
        unseen,
        partial(holdings.calls_in_hand, incarnation, partition, head.downlink_position),
    )
    if sides.is_agreed and not calls:
        return head, sides.epoch
    head = head.copied()
    bodies = list(encode_calls(calls, plan.compression))
    head.counters.resent_calls += len(calls)
    if not sides.is_agreed:
        is_all = sides.is_other or head.counters.forgotten_frames > 0
        records = _missing(rows, head, partial(holdings.last_numbers, incarnation), is_all=is_all)
        features = [encode_body(part, plan.compression) for part in split_records(records)]
        bodies = [*features, *(body for _, body in outbox if is_reports(body)), *bodies]
        head.counters.resent_features += len(records)
        _renumber(head, sides, max(rows.epoch, sides.epoch) + 1)
        if plan.report_ms:
            _count_reports(head, sides)
        if sides.is_older or head.counted_frame >= sides.held:
            head.counted_frame = sides.held + len(features)
        rows.put_outbox((), [number for number, _ in outbox])
        _log.info(
            "partition %d and the cloud side disagree after a power cut, or since a copy was "
            "restored: %s has forgotten frames, %d features are sent again",
            partition,
            "the partition" if sides.forgotten else "the cloud side",
            len(records),
        )
    frames = list(enumerate(bodies, head.next_frame))
    head.next_frame += len(frames)
    rows.put_outbox(frames, ())
    rows.commit(head, rows.offset())
    rows.durability.wait()
    if calls:
        _log.info("partition %d asks %d calls of services again", partition, len(calls))
    return head, sides.epoch


class _Sides(NamedTuple):
    # what a partition and the cloud side have of its frames
    made: int
    acknowledged: int
    epoch: int
    held: int
    is_other: bool
    """Another copy was opened meanwhile, and its frames may have numbers of these."""
    is_older: bool
    """The cloud side is a copy that is older than the last new numbering of the frames."""

    @property
    def is_agreed(self) -> bool:
        is_between = self.acknowledged <= self.held <= self.made
        return is_between and not self.is_other and not self.is_older

    @property
    def forgotten(self) -> int:
        return max(self.held - self.made, int(self.is_other))


def _compare(
    rows: PartitionRows,
    head: PartitionHead,
    outbox: Sequence[tuple[int, bytes]],
    last_frame: tuple[int, int],
) -> _Sides:
    made = head.next_frame - 1
    epoch, held = last_frame
    # one that has seen none of this numbering yet is the one that was asked for it, or a copy
    is_asked = (epoch, held + 1) == (head.asked_epoch, head.numbering.first)
    return _Sides(
        made,
        outbox[0][0] - 1 if outbox else made,
        epoch,
        held,
        is_other=epoch > rows.epoch,
        is_older=0 < epoch < head.numbering.since and not is_asked,
    )


def _forgotten_calls(
    rows: PartitionRows, unseen: Sequence[bytes], in_hand: Callable[[], Collection[str]]
) -> list[CloudCall]:
    calls = list(rows.calls())
    if not calls:
        return []
    known = {call.digest for body in unseen for call in decode_calls(body) or ()}
    known |= set(in_hand())
    return [call for call in calls if call.digest not in known]


def _renumber(head: PartitionHead, sides: _Sides, epoch: int) -> None:
    head.next_frame = sides.held + 1
    head.numbering = Numbering(epoch, sides.held + 1)
    head.asked_epoch = sides.epoch
    head.counters.forgotten_frames += sides.forgotten


def _count_reports(head: PartitionHead, sides: _Sides) -> None:
    # numbers of an older numbering say nothing: any of the frames
    counted = head.counted_frame
    kept = counted if sides.is_older else max(counted, sides.held)
    head.counters.lost_reports += max(sides.acknowledged - kept, 0)


def _missing(
    rows: PartitionRows,
    head: PartitionHead,
    last_numbers: Callable[[list[str]], Sequence[int]],
    *,
    is_all: bool,
) -> list[FeatureRecord]:
    # features that the cloud side lacks; all of a partition that was behind once: there may be
    # others of the same numbers, and a copy of the cloud side may be from before that
    counters, missing = head.counters, list[FeatureRecord]()
    for devices in batched(rows.made(), _ASKED, strict=False):
        numbers = last_numbers([device_id for device_id, _ in devices])
        for (_, features), last in zip(devices, numbers, strict=True):
            before = last
            for record in features:
                if record.sequence_number > before:
                    counters.lost_features += record.sequence_number - before - 1
                    before = record.sequence_number
                elif not is_all:
                    continue
                missing.append(record)
    return missing
