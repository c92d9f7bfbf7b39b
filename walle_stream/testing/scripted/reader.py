"""Reader that executes a script step by step from any offset.

An offset is the number of steps done for a partition. A reader starts at the lowest offset of its
partitions and skips the steps that a partition has already done.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, override

from walle_stream.errors import SourceError
from walle_stream.ports import Unread
from walle_stream.reading import Lane, LaneReader, Opening, Position, record_dead_letter
from walle_stream.reading.offsets import Count
from walle_stream.testing.scripted.gates import LOOK_S, Gates
from walle_stream.testing.scripted.script import Step


class ScriptPosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position of a partition in a script."""

    what: ClassVar[str] = "a script"
    order = ("steps",)

    steps: Count = 0


class _Lane(Lane[ScriptPosition]):
    _uncounted = 0


class ScriptedReader(LaneReader[ScriptPosition]):
    """Reader of a script that was opened at its partitions' offsets. For one thread."""

    lane_type = _Lane

    def __init__(self, steps: Sequence[Step], gates: Gates, opening: Opening) -> None:
        """Start at the lowest offset.

        Args:
            steps: Steps of the script, of which the last is an end.
            gates: Files of pauses and aborts.
            opening: Arguments of the source's opening.

        Raises:
            SourceError: An offset does not belong to this script.
        """
        super().__init__(opening, ScriptPosition())
        self._steps, self._gates = steps, gates
        done = [lane.done.steps for lane in self._lanes.values()]
        if max(done) > len(steps):
            raise SourceError(f"an offset is {max(done)} steps: this script has {len(steps)}")
        self._next = min(done)
        self._is_done = self._next == len(steps)

    @override
    def _go_on(self) -> bool:
        step = self._steps[self._next]
        if step.kind in {"pause", "abort"}:
            # all rows before the command must be handed over in an earlier read
            self._cut()
            return bool(self._ready) or self._obey(step)
        self._next += 1
        if step.kind == "end":
            # an end counts only for partitions that have not passed it
            self._tell_end()
            self._finish()
        else:
            self._take(step)
        return True

    def _obey(self, step: Step) -> bool:
        """Execute a command; return False after a short wait while it pauses."""
        if step.kind == "abort":
            self._gates.abort(step.text)
        elif not self._gates.reach(step.text):
            time.sleep(LOOK_S)
            return False
        self._next += 1
        return True

    def _take(self, step: Step) -> None:
        lane = self._lanes[self._number_of(step.device_id)]
        if self._next <= lane.done.steps:
            return
        row = step.text.encode()
        lane.raw_bytes += len(row)
        if self.keeps_raw:
            lane.raw.append(row)
        if step.kind == "event" and step.event is not None:
            lane.accepted_rows += 1
            lane.events.append(step.event)
        elif step.kind == "duplicate":
            lane.duplicate_rows += 1
        else:
            is_late = step.kind == "late"
            lane.late_rows += is_late
            letter = record_dead_letter(
                row,
                route="late" if is_late else "decode",
                reason="the script says so" if is_late else "broken by the script",
                origin=step.origin,
                device_id=step.device_id,
            )
            lane.dead_letters.append(letter)
        self._row += 1
        self._count += 1
        if self._count >= self.batch_events:
            self._cut()

    @override
    def _position(self, lane: Lane[ScriptPosition], *, is_end: bool = False) -> ScriptPosition:
        return ScriptPosition(steps=self._next, is_end=is_end)

    @override
    @property
    def progress(self) -> float:
        """Share of the steps that are done, 0-1."""
        return self._next / len(self._steps)

    @override
    @property
    def unread(self) -> Unread:
        """Steps that are not done yet."""
        left = self._steps[self._next :]
        newest = next((x.event.ingest_time_ms for x in reversed(left) if x.event), -1)
        size_bytes = sum(len(step.text.encode()) for step in left)
        return Unread(len(left), size_bytes, self._behind_ms(newest) if left else 0)
