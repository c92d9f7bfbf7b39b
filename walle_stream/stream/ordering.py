"""The time level of one device: events in the order of their own time.

``HeldEvents`` holds events back for earlier ones that may still come;
``SeenUids`` knows which occurrences were seen. Both are parts of
``DeviceSequence``, which decides what is late.

Invariants: what is held is never below what was released; both are bounded by
the events within the order bound.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from walle_stream.events import Event

_NEVER: Final = 1 << 62


class HeldEvents:
    """Events of one device that wait for earlier ones. One thread."""

    __slots__ = ("_arrivals", "_bound_ms", "_events", "_released", "_timers", "deadline_ms")

    def __init__(self, bound_ms: int, arrivals: int = 0) -> None:
        """Start with nothing held.

        Args:
            bound_ms: How long an event is held, in ingest time, ≥ 0.
            arrivals: How many events were held before (of a restored device).
        """
        self._bound_ms = bound_ms
        self._arrivals = arrivals
        self._events: list[tuple[int, int, Event]] = []  # heap: (event time, arrival, event)
        # heap of (ingest time, event time, arrival); entries released meanwhile stay in it
        # until they come to the top
        self._timers: list[tuple[int, int, int]] = []
        self._released = (-_NEVER, -1)  # (event time, arrival) of the last event released
        self.deadline_ms: int | None = None
        """Ingest watermark at which the first event is due."""

    def hold(self, event: Event) -> None:
        """Take an event that is not late.

        Args:
            event: Its event time is at least that of all events released.
        """
        self._push(self._arrivals, event)
        self._arrivals += 1
        self._settle()

    def release_until(self, time_ms: int) -> list[Event]:
        """Let the events up to an event time go.

        Args:
            time_ms: Highest event time to release, inclusive.

        Returns:
            The events in the order (event time, arrival).
        """
        return self._release((time_ms, self._arrivals))

    def release_due(self) -> list[Event]:
        """Let the event go that is due first, behind all that precede it.

        Returns:
            The events in the order (event time, arrival).
        """
        return self._release(self._timers[0][1:]) if self._timers else []

    def export(self) -> tuple[int, list[tuple[Any, ...]]]:
        """Return how many were held so far, and what is held, in order."""
        held = [(arrival, *_event_fields(event)) for _, arrival, event in sorted(self._events)]
        return self._arrivals, held

    @classmethod
    def restore(cls, bound_ms: int, arrivals: int, held: Iterable[Any]) -> "HeldEvents":
        """Make the object that ``export`` described.

        Args:
            bound_ms: As in the constructor.
            arrivals: First part of what ``export`` returned.
            held: Second part; lists in place of tuples do.
        """
        self = cls(bound_ms, arrivals)
        for arrival, *fields in held:
            self._push(arrival, Event(*fields))
        self._settle()
        return self

    def _push(self, arrival: int, event: Event) -> None:
        heappush(self._events, (event.event_time_ms, arrival, event))
        heappush(self._timers, (event.ingest_time_ms, event.event_time_ms, arrival))

    def _release(self, last: tuple[int, int]) -> list[Event]:
        events = self._events
        released = []
        while events and events[0][:2] <= last:
            time_ms, arrival, event = heappop(events)
            self._released = (time_ms, arrival)
            released.append(event)
        if released:
            self._settle()
        return released

    def _settle(self) -> None:
        timers = self._timers
        while timers and timers[0][1:] <= self._released:
            heappop(timers)
        self.deadline_ms = timers[0][0] + self._bound_ms if timers else None


class SeenUids:
    """Identities of the events that one device gave. One thread."""

    __slots__ = ("_order", "_times")

    def __init__(self, exported: Iterable[Any] = ()) -> None:
        """Start with nothing seen, or with what ``export`` returned."""
        self._times: dict[str, int] = dict(exported)
        self._order = [(time_ms, uid) for uid, time_ms in self._times.items()]  # heap
        heapify(self._order)

    def time_of(self, uid: str) -> int | None:
        """Return the event time of a known uid, else None."""
        return self._times.get(uid)

    def add(self, uid: str, time_ms: int, oldest_ms: int) -> None:
        """Remember a uid, and forget those that cannot matter any more.

        Args:
            uid: The event's identity.
            time_ms: Its event time; replaces an older one.
            oldest_ms: Uids of events before this time are forgotten.
        """
        times, order = self._times, self._order
        times[uid] = time_ms
        heappush(order, (time_ms, uid))
        while order[0][0] < oldest_ms:
            old_ms, old = heappop(order)
            if times[old] == old_ms:
                del times[old]

    def export(self) -> list[tuple[str, int]]:
        """Return (uid, event time), ordered."""
        return sorted(self._times.items())


def _event_fields(event: Event) -> tuple[Any, ...]:
    return (
        event.device_id,
        event.id,
        event.kind,
        event.page_id,
        event.page_instance,
        event.event_time_ms,
        event.ingest_time_ms,
        event.contents,
        event.uid,
    )
