"""Source records of a turn's events, for its dead letters and traces.

They are looked up only for a failed or traced run: of an event only its number is kept.
"""

from typing import NamedTuple

from walle_stream.ports import Origins, SourceBatch
from walle_stream.stream.commands import Runs, RunTask
from walle_stream.wire.event_batch import EventBatch


class _Part(NamedTuple):
    runs: Runs
    events: EventBatch
    origins: Origins
    before: str


class RunOrigins:
    """Origins of one turn. One thread, the partition host's."""

    __slots__ = ("_parts", "has_traces", "last")

    def __init__(self, last: str = "") -> None:
        """Begin with the last record of the previous turns; empty for none."""
        self._parts: list[_Part] = []
        self.last = last
        self.has_traces = False
        """Whether some of the records carry a trace context."""

    def add(self, runs: Runs, batch: SourceBatch) -> None:
        """Remember a batch that was taken, with the runs that it woke."""
        origins = batch.origins
        if origins is None:
            return
        if runs:
            self._parts.append(_Part(runs, batch.events, origins, self.last))
        self.has_traces = self.has_traces or bool(origins.traces)
        if origins.numbers:
            self.last = origins.of(-1)

    def of_run(self, run: RunTask) -> str:
        """Return the record whose event woke a run, as well as it can be determined.

        An event may have come in an earlier batch, and waited for its device's order. Then it is
        the device's record that released the event; for a timeout it is the last record read. Empty
        if no record woke the run, or the source names no records.
        """
        part, index = self._find(run)
        if part is None:
            return ""
        return part.before if index is None else part.origins.of(index)

    def trace_of(self, run: RunTask) -> str:
        """Return the trace context of that record, or an empty string."""
        part, index = self._find(run)
        if part is None or index is None:
            return ""
        return part.origins.traces.get(part.origins.numbers[index], "")

    def _find(self, run: RunTask) -> tuple[_Part | None, int | None]:
        for part in self._parts:
            own = part.runs.get((run.task, run.program), {}).get(run.device_id, ())
            if any(position == run.position for position, _, _ in own):
                return part, part.events.index_of(run.device_id, run.clock_ms)
        return None, None
