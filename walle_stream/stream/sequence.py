"""Event sequences of one device: time-level in, page-level out (Walle §"event sequence").

Events of a device come in its partition's order; they leave ordered by their
own time (within a bound), each with the open page it belongs to. Time-outs
fire on the ingest watermark of the partition that comes with each event. What
comes out depends on the events alone: calling ``advance`` more often changes
nothing.
"""

from bisect import insort
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from walle_stream.events import Event
from walle_stream.stream.pages import EventRow, OpenPage, event_row

PAGE_MAX_EVENTS_DEFAULT = 10_000
"""Most events of one page when the policy does not say."""

_NEVER = 1 << 62


class SequencePolicy(msgspec.Struct, frozen=True):
    """How page sequences are built."""

    page_timeout_ms: int | None = None
    """A page without a new event for this long (ingest time) is closed; None
    never does."""
    out_of_order_ms: int = 0
    """Events are held so long for earlier ones; later than that is late."""
    page_max_events: int = PAGE_MAX_EVENTS_DEFAULT
    fields: frozenset[str] | None = None
    """Contents that tasks read; None keeps all."""


class SequenceSink(Protocol):
    """What a device's sequence reports, in order."""

    def event(self, event: Event, page: OpenPage | None) -> None:
        """Take a released event; its page has it already (None: no page)."""

    def closed(self, cause: str) -> None:
        """Take note of a closed page, after its last event."""

    def duplicate(self, event: Event) -> None:
        """Take note of an event seen before."""

    def late(self, event: Event) -> None:
        """Take an event below what was released already."""

    def missing_enter(self, event: Event) -> None:
        """Take note of an exit without enter; ``event`` follows with no page."""


class DeviceSequence:
    """State of one device's sequences. One thread."""

    __slots__ = (
        "_arrivals",
        "_by_page",
        "_closed",
        "_held",
        "_highest_ms",
        "_ordinal",
        "_pages",
        "_policy",
        "_released_ms",
        "_uids",
        "next_deadline_ms",
    )

    def __init__(self, policy: SequencePolicy) -> None:
        """Start a device that was never seen.

        Args:
            policy: How sequences are built; the same for the device's life.
        """
        self._policy = policy
        self._pages: dict[tuple[str, str], OpenPage] = {}
        self._held: list[tuple[int, int, Event]] = []  # (event time, arrival, event)
        self._arrivals = 0
        self._uids: dict[str, int] = {}
        self._highest_ms = -_NEVER
        self._released_ms = -_NEVER
        self._ordinal = 0
        self._closed: list[tuple[int, int]] = []
        self.next_deadline_ms: int | None = None
        """Ingest watermark at which ``advance`` has something to do."""

    # Events and time

    def accept(self, event: Event, watermark_ms: int, sink: SequenceSink) -> None:
        """Take the device's next event.

        Args:
            event: The event; its ingest time is at most the watermark.
            watermark_ms: Highest ingest time of the partition, this event's
                included.
            sink: Gets what follows from it.
        """
        deadline = self.next_deadline_ms
        if deadline is not None and deadline <= watermark_ms:
            self.advance(watermark_ms, sink)
        if event.uid and not self._is_new(event, sink):
            return
        time_ms = event.event_time_ms
        if time_ms < self._released_ms:
            sink.late(event)
            return
        bound_ms = self._policy.out_of_order_ms
        if not bound_ms:
            self._highest_ms = self._released_ms = time_ms
            self._release(event, sink)
            return
        insort(self._held, (time_ms, self._arrivals, event), key=_held_order)
        self._arrivals += 1
        self._highest_ms = max(self._highest_ms, time_ms)
        self._release_held(self._highest_ms - bound_ms, sink)
        self._set_deadline()
        if self.next_deadline_ms is not None and self.next_deadline_ms <= watermark_ms:
            self.advance(watermark_ms, sink)

    def advance(self, watermark_ms: int, sink: SequenceSink) -> None:
        """Fire the timers that are due.

        Args:
            watermark_ms: The partition's ingest watermark.
            sink: Gets released events and closed pages.
        """
        while self.next_deadline_ms is not None and self.next_deadline_ms <= watermark_ms:
            deadline_ms = self.next_deadline_ms
            bound_ms = self._policy.out_of_order_ms
            due = [item for item in self._held if item[2].ingest_time_ms + bound_ms <= deadline_ms]
            if due:
                # everything before the last one that is due must go first
                self._release_held(max(item[0] for item in due), sink)
            else:
                self._close_due(deadline_ms, sink)
            self._set_deadline()

    def finish(self, sink: SequenceSink) -> None:
        """Fire every timer: the natural end of a bounded source."""
        self.advance(_NEVER, sink)

    # Rest and activation

    def export(self) -> tuple[Any, ...]:
        """Return everything but the rows of open pages, as plain tuples."""
        pages = [
            (page.page_id, page.page_instance, page.ordinal, page.enter_time_ms)
            for page in self._pages.values()
        ]
        held = [(arrival, *_event_tuple(event)) for _, arrival, event in self._held]
        return (
            self._highest_ms,
            self._released_ms,
            self._ordinal,
            self._arrivals,
            pages,
            held,
            sorted(self._uids.items()),
        )

    @classmethod
    def restore(
        cls, policy: SequencePolicy, exported: Any, rows: Mapping[int, list[EventRow]]
    ) -> "DeviceSequence":
        """Make the sequence that ``export`` described.

        Args:
            policy: The device's policy.
            exported: What ``export`` returned; lists in place of tuples do.
            rows: Event rows of the open pages by ordinal, in order.
        """
        self = cls(policy)
        highest, released, ordinal, arrivals, pages, held, uids = exported
        self._highest_ms, self._released_ms = highest, released
        self._ordinal, self._arrivals = ordinal, arrivals
        for page_id, instance, number, enter_ms in pages:
            page = self._pages[page_id, instance] = OpenPage(page_id, instance, number, enter_ms)
            page.events = list(rows.get(number, ()))
            page.persisted_count = len(page.events)
            if page.events:
                page.last_event_time_ms = page.events[-1][2]
                page.last_ingest_ms = max(row[3] for row in page.events)
        for arrival, *values in held:
            event = Event(*values)
            self._held.append((event.event_time_ms, arrival, event))
        self._uids = dict(uids)
        self._set_deadline()
        return self

    def take_changes(self) -> tuple[list[tuple[int, int, EventRow]], list[tuple[int, int]]]:
        """Return what the store must learn, and regard it as stored.

        Returns:
            New event rows of open pages as (ordinal, index, row), and pages
            with stored rows that are closed, as (ordinal, stored row count).
        """
        new_rows = []
        for page in self._pages.values():
            events = page.events
            first = page.persisted_count
            if first < len(events):
                new_rows += [
                    (page.ordinal, index, events[index]) for index in range(first, len(events))
                ]
                page.persisted_count = len(events)
        closed, self._closed = self._closed, []
        return new_rows, closed

    # Inside

    def _is_new(self, event: Event, sink: SequenceSink) -> bool:
        uids = self._uids
        if event.uid in uids:
            sink.duplicate(event)
            return False
        time_ms = event.event_time_ms
        if time_ms < self._released_ms:
            return True  # late: not remembered, it does not get in
        uids[event.uid] = time_ms
        oldest = max(self._highest_ms, time_ms) - self._policy.out_of_order_ms
        if time_ms > self._highest_ms:
            for uid in [uid for uid, seen_ms in uids.items() if seen_ms < oldest]:
                del uids[uid]
        return True

    def _release_held(self, up_to_ms: int, sink: SequenceSink) -> None:
        held = self._held
        count = 0
        while count < len(held) and held[count][0] <= up_to_ms:
            count += 1
        for time_ms, _, event in held[:count]:
            self._released_ms = max(self._released_ms, time_ms)
            self._release(event, sink)
        del held[:count]

    def _release(self, event: Event, sink: SequenceSink) -> None:
        kind = event.kind
        pages = self._pages
        if kind == "page_enter":
            self._enter(event, sink)
            return
        page = pages.get((event.page_id, event.page_instance)) if pages else None
        if page is None and pages and not event.page_instance:
            page = self._latest(event.page_id)
        if page is None:
            if kind == "page_exit":
                sink.missing_enter(event)
            sink.event(event, None)
            return
        if kind == "page_exit":
            self._append(page, event)
            self._end(page, event, "exit", sink)
        elif len(page.events) >= self._policy.page_max_events:
            exit_event = _synthetic_exit(
                event.device_id, page, event.event_time_ms, event.ingest_time_ms
            )
            self._append(page, exit_event)
            self._end(page, exit_event, "overflow", sink)
            sink.event(event, None)
        else:
            self._append(page, event)
            sink.event(event, page)
            if self._policy.page_timeout_ms is not None:
                self._set_deadline()

    def _enter(self, event: Event, sink: SequenceSink) -> None:
        key = (event.page_id, event.page_instance)
        page = self._pages.get(key)
        if page is not None:
            exit_event = _synthetic_exit(
                event.device_id, page, event.event_time_ms, event.ingest_time_ms
            )
            self._append(page, exit_event)
            self._end(page, exit_event, "reenter", sink)
        self._ordinal += 1
        page = OpenPage(event.page_id, event.page_instance, self._ordinal, event.event_time_ms)
        self._pages[key] = page
        self._append(page, event)
        sink.event(event, page)
        if self._policy.page_timeout_ms is not None:
            self._set_deadline()

    def _append(self, page: OpenPage, event: Event) -> None:
        page.events.append(event_row(event, self._policy.fields))
        page.last_event_time_ms = event.event_time_ms
        page.last_ingest_ms = max(page.last_ingest_ms, event.ingest_time_ms)

    def _end(self, page: OpenPage, event: Event, cause: str, sink: SequenceSink) -> None:
        page.cause = cause
        del self._pages[page.page_id, page.page_instance]
        if page.persisted_count:
            self._closed.append((page.ordinal, page.persisted_count))
        sink.event(event, page)
        sink.closed(cause)
        if self._policy.page_timeout_ms is not None:
            self._set_deadline()

    def _latest(self, page_id: str) -> OpenPage | None:
        found = None
        for page in self._pages.values():
            if page.page_id == page_id and (found is None or page.ordinal > found.ordinal):
                found = page
        return found

    def _close_due(self, deadline_ms: int, sink: SequenceSink) -> None:
        timeout_ms = self._policy.page_timeout_ms
        if timeout_ms is None:
            return
        for page in sorted(self._pages.values(), key=_open_order):
            if page.last_ingest_ms + timeout_ms == deadline_ms:
                exit_event = _synthetic_exit("", page, page.last_event_time_ms, deadline_ms)
                self._append(page, exit_event)
                self._end(page, exit_event, "timeout", sink)
                return  # one at a time: what it wakes comes before the next

    def _set_deadline(self) -> None:
        deadline = _NEVER
        if self._held:
            bound_ms = self._policy.out_of_order_ms
            deadline = min(item[2].ingest_time_ms for item in self._held) + bound_ms
        timeout_ms = self._policy.page_timeout_ms
        if timeout_ms is not None and self._pages:
            first = min(page.last_ingest_ms for page in self._pages.values())
            deadline = min(deadline, first + timeout_ms)
        self.next_deadline_ms = None if deadline == _NEVER else deadline


def _held_order(item: tuple[int, int, Event]) -> tuple[int, int]:
    return item[0], item[1]


def _open_order(page: OpenPage) -> int:
    return page.ordinal


def _event_tuple(event: Event) -> tuple[Any, ...]:
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


def _synthetic_exit(device_id: str, page: OpenPage, event_time_ms: int, ingest_ms: int) -> Event:
    return Event(
        device_id,
        "page_exit",
        "page_exit",
        page.page_id,
        page.page_instance,
        event_time_ms,
        ingest_ms,
    )
