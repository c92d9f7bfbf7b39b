"""Which records of the source a turn's events came in, for its dead letters.

Asked only where something failed: nothing is kept of an event but its number.
"""

from typing import NamedTuple

from walle_stream.events import Event
from walle_stream.ports import Origins
from walle_stream.stream.commands import RunTask
from walle_stream.wire.journal import decode_events


class _Part(NamedTuple):
    first_run: int
    runs: int
    encoded: bytes
    origins: Origins
    before: str


class Places:
    """Of one turn. One thread, the partition host's."""

    __slots__ = ("_parts", "last")

    def __init__(self, last: str = "") -> None:
        """Begin with nothing.

        Args:
            last: The last record of the turns before; empty for none.
        """
        self._parts: list[_Part] = []
        self.last = last
        """The last record that was read."""

    def add(self, first_run: int, runs: int, encoded: bytes, origins: Origins | None) -> None:
        """Remember a batch.

        Args:
            first_run: How many runs the turn had before it.
            runs: How many it woke.
            encoded: Its events as the journal has them.
            origins: Its own; None where its source names none.
        """
        if origins is None:
            return
        if runs:
            self._parts.append(_Part(first_run, runs, encoded, origins, self.last))
        if origins.numbers:
            self.last = origins.of(-1)

    def of_run(self, index: int, run: RunTask) -> str:
        """Return the record whose event woke a run, as well as it can be told.

        Where that event came in an earlier batch, because it waited for its device's order, it
        is the device's record that let it go on; for a time-out the last that was read.

        Returns:
            Empty where no record woke it, or the source names none.
        """
        for part in self._parts:
            if part.first_run <= index < part.first_run + part.runs:
                return _of_run(part, run)
        return ""


def _of_run(part: _Part, run: RunTask) -> str:
    events, origins = decode_events(part.encoded), part.origins
    own = [index for index, event in enumerate(events) if event.device_id == run.device_id]
    exact = [index for index in own if events[index].event_time_ms == run.clock_ms]
    found = exact or own or range(len(events))
    return origins.of(found[-1]) if found else part.before


def origin_of(event: Event, events: list[Event], origins: Origins | None) -> str:
    """Return the record of an event, or its device and time where the source names none.

    Args:
        event: One of ``events``.
        events: Of a batch.
        origins: The batch's.
    """
    if origins is not None:
        for index, each in enumerate(events):
            if each is event:
                return origins.of(index)
    return f"{event.device_id}@{event.ingest_time_ms}"
