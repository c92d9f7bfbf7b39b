"""Event sequences of one device: time-level in, page-level out (Walle §"event sequence").

Events of a device come in its partition's order. They leave in the order of their
own time (within a bound), each with its open page. The device's own clock decides
order and lateness. Timers fire by the partition's ingest watermark, which comes with
each event.

Invariants: the output depends on the events and their watermarks alone; more calls
of ``advance``, or an export and restore at any point, change nothing. Every accepted
event leaves exactly once: as an event, a duplicate or late. Place in the data flow:
between the source's batch and ``TriggerTrie``; the sink is ``PartitionMachine``.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from walle_stream.events import Event
from walle_stream.stream.open_pages import EVERY_ID, OpenPages, PageSink
from walle_stream.stream.ordering import NEVER_MS, HeldEvents
from walle_stream.stream.pages import EventRow

PAGE_MAX_EVENTS_DEFAULT: Final = 10_000
"""Default of the largest number of events of one page."""

_FORGET_AT: Final = 16


class SequencePolicy(msgspec.Struct, frozen=True):
    """Rules by which events become page sequences."""

    page_timeout_ms: int | None = None
    """Ingest time without a new event after which a page is closed; None for never."""
    out_of_order_ms: int = 0
    """Time for which events are held for earlier ones; an event delayed longer is late."""
    page_max_events: int = PAGE_MAX_EVENTS_DEFAULT
    """Most events of a page before its exit; the next event closes the page."""
    fields: frozenset[str] | None = None
    """Contents that tasks read; None keeps all."""


class SequenceSink(PageSink, Protocol):
    """Receiver of a sequence's reports, in order; it must not call the sequence."""

    def duplicate(self, event: Event) -> None:
        """Note a duplicate event, which goes no further."""

    def late(self, event: Event) -> None:
        """Take an event earlier than a released one; it goes no further."""


class DeviceSequence:
    """State of one device's sequences, for one thread.

    Events mostly come in order. Then a queue holds them, whose first event is due
    first. After an event out of order, ``HeldEvents`` holds events until it is empty.
    """

    __slots__ = (
        "_bound_ms",
        "_forget_at",
        "_held",
        "_highest_ingest_ms",
        "_highest_ms",
        "_queue",
        "_released_ms",
        "_uids",
        "due_ms",
        "pages",
    )

    def __init__(
        self, policy: SequencePolicy, device_id: str = "", ids: Container[str] = EVERY_ID
    ) -> None:
        """Start a new device.

        The policy, except its fields, stays the same for the device's life.
        """
        self._bound_ms = policy.out_of_order_ms
        self._highest_ms = -NEVER_MS
        self._highest_ingest_ms = -NEVER_MS
        self._released_ms = -NEVER_MS
        self._queue: list[Event] = []
        self._held: HeldEvents | None = None
        self._uids: dict[str, int] = {}  # event times by uid; some are too old to matter
        self._forget_at = _FORGET_AT
        self.pages = OpenPages(
            policy.page_timeout_ms, policy.page_max_events, policy.fields, device_id, ids
        )
        """The device's open pages; always the same object."""
        self.due_ms = NEVER_MS
        """Ingest watermark before which ``advance`` has nothing to do."""

    # Events and time

    def accept(self, event: Event, watermark_ms: int, sink: SequenceSink) -> None:
        """Take the device's next event, after firing the timers that are due.

        The watermark is the highest ingest time of the partition, this event's included.
        """
        # the hottest code of a pipeline: only uncommon branches make calls
        if self.due_ms <= watermark_ms:
            self.advance(watermark_ms, sink)
        time_ms, uid, uids = event.event_time_ms, event.uid, self._uids
        if (time_ms < self._released_ms or uid in uids) and self._is_refused(event, sink):
            return
        if uid:
            uids[uid] = time_ms
            if len(uids) >= self._forget_at:
                self._forget()
        bound_ms = self._bound_ms
        if not bound_ms:
            self._highest_ms = self._released_ms = time_ms
            pages = self.pages
            pages.take(event, sink)
            self.due_ms = pages.due_ms
            return
        ingest_ms, queue = event.ingest_time_ms, self._queue
        if (
            time_ms < self._highest_ms
            or ingest_ms < self._highest_ingest_ms
            or self._held is not None
        ):
            self._accept_out_of_order(event, sink)
            return
        self._highest_ms, self._highest_ingest_ms = time_ms, ingest_ms
        queue.append(event)
        if queue[0] is event:
            if ingest_ms + bound_ms < self.due_ms:
                self.due_ms = ingest_ms + bound_ms
        elif queue[0].event_time_ms <= time_ms - bound_ms:
            self._release_until(time_ms - bound_ms, sink)

    def advance(self, watermark_ms: int, sink: SequenceSink) -> None:
        """Fire the timers that are due, in the order of their deadlines.

        At the same deadline, held events come before pages, and pages come in the
        order of their enters.
        """
        pages, queue = self.pages, self._queue
        limit_ms = watermark_ms - self._bound_ms
        # while no page can be due, release due events of the queue one by one
        while queue and queue[0].ingest_time_ms <= limit_ms and pages.due_ms > watermark_ms:
            event = queue.pop(0)
            self._released_ms = event.event_time_ms
            pages.take(event, sink)
        if pages.due_ms <= watermark_ms or self._held is not None:
            self._advance_all(watermark_ms, sink)
        elif queue:
            due_ms = queue[0].ingest_time_ms + self._bound_ms
            self.due_ms = due_ms if due_ms < pages.due_ms else pages.due_ms
        else:
            self.due_ms = pages.due_ms

    def finish(self, sink: SequenceSink) -> None:
        """Fire every timer at the natural end of a bounded source."""
        self.advance(NEVER_MS - 1, sink)

    def settle(self) -> int | None:
        """Make ``due_ms`` exact and return it; None if nothing will be due.

        The store gets the exact value, which depends on the events alone. The value kept
        in between depends on the times of checks.
        """
        due_ms = self.pages.settle()
        if self._queue:
            due_ms = min(due_ms, self._queue[0].ingest_time_ms + self._bound_ms)
        elif self._held is not None:
            due_ms = min(due_ms, self._held.due_ms)
        self.due_ms = due_ms
        return None if due_ms == NEVER_MS else due_ms

    # Rest and activation

    def export(self) -> tuple[Any, ...]:
        """Return everything except the rows of open pages, as plain values.

        Returns:
            (highest event time, highest released time, number of entered pages, number
            of held events, headers of open pages, held events, known uids).
        """
        waiting = self._queue if self._held is None else self._held.events
        held = [(index, *msgspec.structs.astuple(event)) for index, event in enumerate(waiting)]
        oldest_ms = self._oldest_uid_ms()
        return (
            self._highest_ms,
            self._released_ms,
            self.pages.entered_count,
            len(held),
            self.pages.export(),
            held,
            sorted((uid, ms) for uid, ms in self._uids.items() if ms >= oldest_ms),
        )

    @classmethod
    def restore(
        cls,
        policy: SequencePolicy,
        exported: Any,
        rows: Mapping[int, Sequence[EventRow]],
        device_id: str = "",
        ids: Container[str] = EVERY_ID,
    ) -> "DeviceSequence":
        """Restore a sequence from the result of ``export``.

        ``rows`` has the stored event rows of the open pages by ordinal, in row order, as
        ``take_changes`` returned them up to the export.
        """
        self = cls(policy, device_id, ids)
        highest_ms, released_ms, entered_count, _, headers, held, uids = exported
        self._highest_ms, self._released_ms = highest_ms, released_ms
        if held:
            self._held = HeldEvents(self._bound_ms)
            for _, *fields in held:
                self._held.hold(Event(*fields))
        self._uids = dict(uids)
        self._forget_at = max(_FORGET_AT, 2 * len(self._uids))
        self.pages.restore(entered_count, headers, rows)
        self.settle()
        return self

    # Inside

    def _is_refused(self, event: Event, sink: SequenceSink) -> bool:
        uid = event.uid
        if uid and uid in self._uids and self._uids[uid] >= self._oldest_uid_ms():
            sink.duplicate(event)
        elif event.event_time_ms < self._released_ms:
            sink.late(event)
        else:
            return False
        return True

    def _accept_out_of_order(self, event: Event, sink: SequenceSink) -> None:
        held = self._held
        if held is None:
            held = self._held = HeldEvents(self._bound_ms)
            queue, self._queue = self._queue, []
            for waiting in queue:
                held.hold(waiting)
        self._highest_ms = max(self._highest_ms, event.event_time_ms)
        self._highest_ingest_ms = max(self._highest_ingest_ms, event.ingest_time_ms)
        held.hold(event)
        self._release(held.release_until(self._highest_ms - self._bound_ms), sink)
        held_ms = NEVER_MS if self._held is None else held.due_ms
        self.due_ms = min(held_ms, self.pages.due_ms)

    def _release_until(self, limit_ms: int, sink: SequenceSink) -> None:
        # the queue never becomes empty, because its last event set the limit
        pages, queue = self.pages, self._queue
        while queue[0].event_time_ms <= limit_ms:
            event = queue.pop(0)
            self._released_ms = event.event_time_ms
            pages.take(event, sink)
        self.due_ms = min(queue[0].ingest_time_ms + self._bound_ms, pages.due_ms)

    def _advance_all(self, watermark_ms: int, sink: SequenceSink) -> None:
        pages, queue, bound_ms = self.pages, self._queue, self._bound_ms
        while True:
            page_ms = pages.due_ms
            if page_ms <= watermark_ms:
                page_ms = pages.settle()  # the exact value may be later
            if queue:
                held_ms = queue[0].ingest_time_ms + bound_ms
            else:
                held_ms = NEVER_MS if self._held is None else self._held.due_ms
            if held_ms <= page_ms:
                if held_ms > watermark_ms:
                    break
                if queue:
                    event = queue.pop(0)
                    self._released_ms = event.event_time_ms
                    pages.take(event, sink)
                elif self._held is not None:
                    self._release(self._held.release_due(), sink)
            elif page_ms <= watermark_ms:
                pages.close_first(sink)
            else:
                break
        self.due_ms = min(held_ms, page_ms)

    def _release(self, events: list[Event], sink: SequenceSink) -> None:
        if self._held is not None and self._held.due_ms == NEVER_MS:
            self._held = None
        for event in events:
            self._released_ms = event.event_time_ms
            self.pages.take(event, sink)

    def _forget(self) -> None:
        # called rarely, because it visits all uids
        oldest_ms = self._oldest_uid_ms()
        self._uids = uids = {uid: ms for uid, ms in self._uids.items() if ms >= oldest_ms}
        self._forget_at = max(_FORGET_AT, 2 * len(uids))

    def _oldest_uid_ms(self) -> int:
        # a repeated event earlier than both can only be late
        oldest_ms = self._highest_ms - self._bound_ms
        return oldest_ms if oldest_ms < self._released_ms else self._released_ms
