"""The time level of one device: events in the order of their own time.

``HeldEvents`` holds events back for earlier ones that may still come;
``SeenUids`` knows which occurrences were seen. Both are parts of
``DeviceSequence``, which decides what is late.

Invariants: what is held is never below what was released; both are bounded by
the events within the order bound.
"""

from bisect import insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from walle_stream.events import Event

_NEVER: Final = 1 << 62
_FORGET_AT: Final = 8


class HeldEvents:
    """Events of one device that wait for earlier ones. One thread.

    Events mostly come in order; then the list needs no sorting and its first event
    is due first. Only an event that came out of order makes a heap of deadlines
    necessary, until nothing is held any more.
    """

    __slots__ = ("_arrivals", "_bound_ms", "_events", "_timers", "deadline_ms")

    def __init__(self, bound_ms: int, arrivals: int = 0) -> None:
        """Start with nothing held.

        Args:
            bound_ms: How long an event is held, in ingest time, ≥ 0.
            arrivals: How many events were held before (of a restored device).
        """
        self._bound_ms = bound_ms
        self._arrivals = arrivals
        self._events: list[tuple[int, int, Event]] = []  # sorted: (event time, arrival, event)
        # heap of (ingest time, event time, arrival), None while the first event is due first;
        # entries released meanwhile stay in it until they come to the top
        self._timers: list[tuple[int, int, int]] | None = None
        self.deadline_ms: int | None = None
        """Ingest watermark at which the first event is due."""

    def hold(self, event: Event) -> None:
        """Take an event that is not late.

        Args:
            event: Its event time is at least that of all events released.
        """
        self._push(self._arrivals, event)
        self._arrivals += 1

    def release_until(self, time_ms: int) -> list[Event]:
        """Let the events up to an event time go.

        Args:
            time_ms: Highest event time to release, inclusive.

        Returns:
            The events in the order (event time, arrival).
        """
        events = self._events
        count = 0
        for entry in events:
            if entry[0] > time_ms:
                break
            count += 1
        return self._release(count) if count else []

    def release_due(self) -> list[Event]:
        """Let the event go that is due first, behind all that precede it.

        Returns:
            The events in the order (event time, arrival).
        """
        timers = self._timers
        if timers is None:
            return self._release(1) if self._events else []
        last = timers[0][1:]
        count = 0
        for entry in self._events:
            if entry[:2] > last:
                break
            count += 1
        return self._release(count)

    def export(self) -> tuple[int, list[tuple[Any, ...]]]:
        """Return how many were held so far, and what is held, in order."""
        return self._arrivals, [
            (arrival, *_event_fields(event)) for _, arrival, event in self._events
        ]

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
        return self

    def _push(self, arrival: int, event: Event) -> None:
        events, timers = self._events, self._timers
        ingest_ms = event.ingest_time_ms
        entry = (event.event_time_ms, arrival, event)
        if not events:
            events.append(entry)
            self.deadline_ms = ingest_ms + self._bound_ms
            return
        last = events[-1]
        if last < entry:
            events.append(entry)
            is_in_order = last[2].ingest_time_ms <= ingest_ms
        else:
            insort(events, entry)
            is_in_order = False
        if timers is not None:
            heappush(timers, (ingest_ms, entry[0], arrival))
        elif not is_in_order:
            timers = self._timers = [
                (held.ingest_time_ms, time_ms, number) for time_ms, number, held in events
            ]
            heapify(timers)
        if timers is not None:
            self.deadline_ms = timers[0][0] + self._bound_ms

    def _release(self, count: int) -> list[Event]:
        events, timers = self._events, self._timers
        if count == len(events):
            self._events = []
            self._timers = self.deadline_ms = None
            return [entry[2] for entry in events]
        released = events[:count]
        del events[:count]
        if timers is None:
            self.deadline_ms = events[0][2].ingest_time_ms + self._bound_ms
        else:
            last = released[-1][:2]
            while timers[0][1:] <= last:
                heappop(timers)
            self.deadline_ms = timers[0][0] + self._bound_ms
        return [entry[2] for entry in released]


class SeenUids:
    """Identities of the events that one device gave. One thread."""

    __slots__ = ("_forget_at", "_times")

    def __init__(self, exported: Iterable[Any] = ()) -> None:
        """Start with nothing seen, or with what ``export`` returned."""
        self._times: dict[str, int] = dict(exported)
        self._forget_at = max(_FORGET_AT, 2 * len(self._times))

    def time_of(self, uid: str) -> int | None:
        """Return the event time of a uid, else None; it may be one that cannot matter."""
        return self._times.get(uid)

    def add(self, uid: str, time_ms: int, oldest_ms: int) -> None:
        """Remember a uid, and now and then forget those that cannot matter any more.

        Args:
            uid: The event's identity.
            time_ms: Its event time; replaces an older one.
            oldest_ms: Uids of events before this time need not be known.
        """
        times = self._times
        times[uid] = time_ms
        # not at every event: a look at all costs as much as there are
        if len(times) >= self._forget_at:
            self._times = times = {u: ms for u, ms in times.items() if ms >= oldest_ms}
            self._forget_at = max(_FORGET_AT, 2 * len(times))

    def export(self, oldest_ms: int) -> list[tuple[str, int]]:
        """Return (uid, event time), ordered.

        Args:
            oldest_ms: As in ``add``; what is forgotten when must not be seen.
        """
        return sorted((uid, ms) for uid, ms in self._times.items() if ms >= oldest_ms)


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
