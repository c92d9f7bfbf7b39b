"""Out-of-order events of one device, held back for earlier events that may still come.

This is a part of ``DeviceSequence``, which holds events in a plain queue while they
come in order, and decides which events are late.

Invariants: a held event is never earlier than a released one. Only events within the
order bound are held.
"""

from bisect import insort
from heapq import heappop, heappush
from typing import Final

from walle_stream.events import Event

NEVER_MS: Final = 1 << 62
"""Later than any time."""


class HeldEvents:
    """Held events in the order of their own time, for one thread."""

    __slots__ = ("_arrivals", "_bound_ms", "_events", "_timers", "due_ms")

    def __init__(self, bound_ms: int) -> None:
        """Start empty; events are held for ``bound_ms`` of ingest time, ≥ 0."""
        self._bound_ms = bound_ms
        self._arrivals = 0
        self._events: list[tuple[int, int, Event]] = []  # sorted: (event time, arrival, event)
        # heap of (ingest time, event time, arrival); entries of released events stay in it
        # until they reach the top
        self._timers: list[tuple[int, int, int]] = []
        self.due_ms = NEVER_MS
        """Ingest watermark at which the first event is due."""

    def hold(self, event: Event) -> None:
        """Take an event that is not late, after the events of the same time."""
        arrival = self._arrivals
        self._arrivals += 1
        entry = (event.event_time_ms, arrival, event)
        if self._events and entry < self._events[-1]:
            insort(self._events, entry)
        else:
            self._events.append(entry)
        heappush(self._timers, (event.ingest_time_ms, event.event_time_ms, arrival))
        self.due_ms = self._timers[0][0] + self._bound_ms

    def release_until(self, time_ms: int) -> list[Event]:
        """Release events up to an event time, inclusive, in the order (event time, arrival)."""
        return self._release((time_ms, NEVER_MS))

    def release_due(self) -> list[Event]:
        """Release the event that is due first, after all before it in (event time, arrival)."""
        return self._release(self._timers[0][1:]) if self._timers else []

    @property
    def events(self) -> list[Event]:
        """The held events in the order (event time, arrival)."""
        return [event for _, _, event in self._events]

    def _release(self, last: tuple[int, int]) -> list[Event]:
        events, timers = self._events, self._timers
        count = 0
        for entry in events:
            if entry[:2] > last:
                break
            count += 1
        released = [entry[2] for entry in events[:count]]
        del events[:count]
        if not events:
            timers.clear()
        while timers and timers[0][1:] <= last:
            heappop(timers)
        self.due_ms = timers[0][0] + self._bound_ms if timers else NEVER_MS
        return released
