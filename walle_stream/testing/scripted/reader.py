"""Obeys a script, step by step, from any offset on.

An offset is the number of steps that are accounted for the partition. A reader
begins at the one furthest behind and passes over what others have done.
"""

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from walle_stream.errors import SourceError
from walle_stream.ports import (
    DeadLetter,
    DeadLetterRoute,
    EventBatch,
    SourceBatch,
    SourceCounts,
    Unread,
)
from walle_stream.testing.scripted.gates import LOOK_S, Gates
from walle_stream.testing.scripted.script import Step
from walle_stream.types import partition_of

if TYPE_CHECKING:
    from walle_stream.events import Event

_EVENT_BYTES = 500


class _Position(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    steps: int


_decode = msgspec.json.Decoder(_Position).decode
_encode = msgspec.json.Encoder().encode


class _Lane:
    def __init__(self, number: int, done: int) -> None:
        self.number = number
        self.done = done
        self._begin()

    def _begin(self) -> None:
        self._events: list[Event] = []
        self.batch = SourceBatch(self.number, EventBatch([]), b"", SourceCounts(), [])

    def take(self, step: Step, *, keeps_raw: bool) -> None:
        row = step.text.encode()
        counts, size_bytes = self.batch.counts, len(row)
        if keeps_raw:
            self.batch.raw = (self.batch.raw or b"") + row
        counts.source_rows += 1
        counts.raw_bytes += size_bytes
        self.batch.size_bytes += size_bytes + _EVENT_BYTES
        if step.kind == "event" and step.event is not None:
            counts.accepted_rows += 1
            self._events.append(step.event)
        elif step.kind == "duplicate":
            counts.duplicate_rows += 1
        elif step.kind == "late":
            counts.late_rows += 1
            self.batch.dead_letters.append(_dead_letter(step, "late", "the script says so"))
        else:
            counts.dead_letter_rows += 1
            self.batch.dead_letters.append(_dead_letter(step, "decode", "broken by the script"))

    def cut(self, done: int, *, is_end: bool) -> SourceBatch:
        batch = self.batch
        batch.offset = _encode(_Position(1, done))
        batch.is_end, batch.events = is_end, EventBatch(self._events)
        self.done = done
        self._begin()
        return batch


class ScriptedReader:
    """A script that was opened at its partitions' offsets. One thread."""

    def __init__(
        self,
        steps: Sequence[Step],
        gates: Gates,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None,
    ) -> None:
        """Begin.

        Args:
            steps: The script, with an end at its end.
            gates: Where pauses and aborts are noted.
            offsets: By partition.
            partition_count: Number of partitions.
            batch_events: Most events in a batch.
            limit: Most rows to give.

        Raises:
            SourceError: An offset is not of this script.
        """
        self.batch_events = batch_events
        """Most events in a batch; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their raw rows: the script's text of each."""
        self._steps = steps
        self._gates = gates
        self._left = limit
        self._lanes = [
            _Lane(number, _position(number, offsets.get(number), len(steps)))
            for number in range(partition_count)
        ]
        self._next = min(lane.done for lane in self._lanes)
        self._is_done = self._next == len(steps)
        self._ready: list[SourceBatch] = []

    def read(self) -> Sequence[SourceBatch]:
        """Obey the script until a batch is ready; nothing while it pauses, after a short wait."""
        while not self._ready and not self._is_done:
            step = self._steps[self._next]
            if self._left == 0:
                self._flush()
                self._is_done = True
            elif step.kind == "end":
                self._next += 1
                # an end that others still have to pass is none of those before it
                self._flush(is_end=True)
                self._is_done = True
            elif step.kind in {"pause", "abort"}:
                # what stands before it was handed over in an earlier read
                self._flush()
                if not self._ready and not self._obey(step):
                    break
            else:
                self._take(step)
        return self._hand_out()

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned; nothing is held back."""
        self._flush()
        self._is_done = True
        return self._hand_out()

    @property
    def is_done(self) -> bool:
        """Whether an end or the limit was reached and all was returned."""
        return self._is_done and not self._ready

    @property
    def progress(self) -> float:
        """Share of the steps that was done, 0-1."""
        return self._next / len(self._steps)

    @property
    def unread(self) -> Unread:
        """Steps that were not taken yet."""
        return Unread(len(self._steps) - self._next)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _obey(self, step: Step) -> bool:
        if step.kind == "abort":
            self._gates.abort(step.text)
        elif not self._gates.reach(step.text):
            time.sleep(LOOK_S)
            return False
        self._next += 1
        return True

    def _take(self, step: Step) -> None:
        lane = self._lanes[partition_of(step.device_id, len(self._lanes))]
        index = self._next
        self._next += 1
        if index < lane.done:
            return
        lane.take(step, keeps_raw=self.keeps_raw)
        if self._left is not None:
            self._left -= 1
        if lane.batch.counts.source_rows >= self.batch_events:
            self._ready.append(lane.cut(self._next, is_end=False))

    def _flush(self, *, is_end: bool = False) -> None:
        for lane in self._lanes:
            if lane.batch.counts.source_rows or (is_end and lane.done < self._next):
                self._ready.append(lane.cut(self._next, is_end=is_end))

    def _hand_out(self) -> list[SourceBatch]:
        ready, self._ready = self._ready, []
        return ready


def _dead_letter(step: Step, route: DeadLetterRoute, reason: str) -> DeadLetter:
    digest = blake2b(step.text.encode(), digest_size=16).hexdigest()
    return DeadLetter(
        route=route,
        reason=reason,
        origin=step.origin,
        device_id=step.device_id,
        raw=step.text[:1_024],
        digest=digest,
        size_bytes=len(step.text.encode()),
        record=step.text.encode(),
    )


def _position(partition: int, offset: bytes | None, count: int) -> int:
    if offset is None:
        return 0
    try:
        position = _decode(offset)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SourceError(
            f"the offset of partition {partition} is not one of a script ({error}): give the "
            "source that the data directory was made from, or a new --data-dir"
        ) from error
    if position.v != 1 or not 0 <= position.steps <= count:
        raise SourceError(
            f"the offset of partition {partition} is {position.steps} steps with layout "
            f"{position.v}: this script has {count}, this version reads layout 1"
        )
    return position.steps
