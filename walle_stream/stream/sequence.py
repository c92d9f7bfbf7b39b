"""Event sequences of one device: time-level in, page-level out (Walle §"event sequence").

Events of a device come in its partition's order; they leave ordered by their
own time (within a bound), each with the open page it belongs to. Order and
lateness are those of the device's own clock; timers fire on the ingest
watermark of the partition that comes with each event.

Invariants: what comes out depends on the events and their watermarks alone:
neither calling ``advance`` more often nor exporting and restoring at any point
changes anything; every event accepted leaves exactly once, as an event, a
duplicate or late. In the data flow: between the source's batch and
``TriggerTrie``; its sink is ``PartitionMachine``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from walle_stream.events import Event
from walle_stream.stream.open_pages import OpenPages, PageSink
from walle_stream.stream.ordering import NEVER_MS, HeldEvents, event_fields
from walle_stream.stream.pages import EventRow

PAGE_MAX_EVENTS_DEFAULT: Final = 10_000
"""Most events of one page when the policy does not say."""

_FORGET_AT: Final = 16


class SequencePolicy(msgspec.Struct, frozen=True):
    """How page sequences are built."""

    page_timeout_ms: int | None = None
    """A page without a new event for this long (ingest time) is closed; None
    never does."""
    out_of_order_ms: int = 0
    """Events are held so long for earlier ones; later than that is late."""
    page_max_events: int = PAGE_MAX_EVENTS_DEFAULT
    """Events a page takes before its exit; the one after them closes it."""
    fields: frozenset[str] | None = None
    """Contents that tasks read; None keeps all."""


class SequenceSink(PageSink, Protocol):
    """What a device's sequence reports, in order; it must not call back."""

    def duplicate(self, event: Event) -> None:
        """Take note of an event seen before; it goes no further."""
        ...

    def late(self, event: Event) -> None:
        """Take an event below what was released already; it goes no further."""
        ...


class DeviceSequence:
    """State of one device's sequences. One thread.

    Events mostly come in order; then what is held is a queue, of which the first is
    due first. Out of order they are held by ``HeldEvents``, until none is.
    """

    __slots__ = (
        "_arrivals",
        "_bound_ms",
        "_forget_at",
        "_held",
        "_highest_ms",
        "_pages",
        "_queue",
        "_released_ms",
        "_uids",
        "due_ms",
    )

    def __init__(self, policy: SequencePolicy, device_id: str = "") -> None:
        """Start a device that was never seen.

        Args:
            policy: How sequences are built; the same for the device's life.
            device_id: The device, for the exits made by time-outs.
        """
        self._bound_ms = policy.out_of_order_ms
        self._highest_ms = -NEVER_MS
        self._released_ms = -NEVER_MS
        self._arrivals = 0
        self._queue: list[Event] = []
        self._held: HeldEvents | None = None
        self._uids: dict[str, int] = {}  # event times; some are too old to matter
        self._forget_at = _FORGET_AT
        self._pages = OpenPages(
            policy.page_timeout_ms, policy.page_max_events, policy.fields, device_id
        )
        self.due_ms = NEVER_MS
        """Ingest watermark before which ``advance`` has nothing to do."""

    # Events and time

    def accept(  # noqa: C901 - written out: the hottest code of a pipeline
        self, event: Event, watermark_ms: int, sink: SequenceSink
    ) -> None:
        """Take the device's next event, after firing the timers that are due.

        Args:
            event: The event; its ingest time is at most the watermark.
            watermark_ms: Highest ingest time of the partition, this event's
                included; never lower than before.
            sink: Gets what follows from it.
        """
        if self.due_ms <= watermark_ms:
            self.advance(watermark_ms, sink)
        time_ms, uid = event.event_time_ms, event.uid
        if uid:
            uids = self._uids
            if uid in uids and uids[uid] >= self._oldest_uid_ms():
                sink.duplicate(event)
                return
            if time_ms >= self._released_ms:
                uids[uid] = time_ms
                if len(uids) >= self._forget_at:
                    self._forget()
        if time_ms < self._released_ms:
            sink.late(event)
            return
        pages, bound_ms = self._pages, self._bound_ms
        if not bound_ms:
            self._highest_ms = self._released_ms = time_ms
            pages.take(event, sink)
            self.due_ms = pages.due_ms
            return
        if time_ms > self._highest_ms:
            self._highest_ms = time_ms
        queue = self._queue
        if self._held is not None or (
            queue
            and (
                queue[-1].event_time_ms > time_ms or queue[-1].ingest_time_ms > event.ingest_time_ms
            )
        ):
            self._accept_out_of_order(event, sink)
            return
        self._arrivals += 1
        queue.append(event)
        limit_ms = self._highest_ms - bound_ms
        while queue and queue[0].event_time_ms <= limit_ms:
            first = queue.pop(0)
            self._released_ms = first.event_time_ms
            pages.take(first, sink)
        due_ms = queue[0].ingest_time_ms + bound_ms if queue else NEVER_MS
        self.due_ms = due_ms if due_ms < pages.due_ms else pages.due_ms

    def advance(self, watermark_ms: int, sink: SequenceSink) -> None:
        """Fire the timers that are due, in the order of their deadlines.

        Of one deadline, held events come before pages, and pages in the order
        of their enters.

        Args:
            watermark_ms: The partition's ingest watermark.
            sink: Gets released events and closed pages.
        """
        pages, queue, bound_ms = self._pages, self._queue, self._bound_ms
        while True:
            page_ms = pages.due_ms
            if page_ms <= watermark_ms:
                page_ms = pages.settle()  # it may be later than remembered
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
                else:
                    self._release_due(sink)
            elif page_ms <= watermark_ms:
                pages.close_first(sink)
            else:
                break
        self.due_ms = held_ms if held_ms < page_ms else page_ms

    def finish(self, sink: SequenceSink) -> None:
        """Fire every timer: the natural end of a bounded source."""
        self.advance(NEVER_MS - 1, sink)

    def settle(self) -> int | None:
        """Make ``due_ms`` exact and return it, None where nothing is due ever.

        Exact is what goes to the store: it depends on the events alone, while what is
        remembered meanwhile depends on when somebody looked.
        """
        due_ms = self._pages.settle()
        if self._queue:
            due_ms = min(due_ms, self._queue[0].ingest_time_ms + self._bound_ms)
        elif self._held is not None:
            due_ms = min(due_ms, self._held.due_ms)
        self.due_ms = due_ms
        return None if due_ms == NEVER_MS else due_ms

    # Rest and activation

    def export(self) -> tuple[Any, ...]:
        """Return everything but the rows of open pages, as plain values.

        Returns:
            (highest event time seen, highest released, pages entered, events
            held so far, headers of open pages, held events, uids seen).
        """
        first = self._arrivals - len(self._queue)
        held = (
            [(number, *event_fields(event)) for number, event in enumerate(self._queue, first)]
            if self._held is None
            else self._held.export()
        )
        oldest_ms = self._oldest_uid_ms()
        return (
            self._highest_ms,
            self._released_ms,
            self._pages.entered_count,
            self._arrivals,
            self._pages.export(),
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
    ) -> "DeviceSequence":
        """Make the sequence that ``export`` described.

        Args:
            policy: The device's policy.
            exported: What ``export`` returned; lists in place of tuples do.
            rows: Stored event rows of the open pages by ordinal, in row order:
                what ``take_changes`` gave up to the export.
            device_id: As in the constructor.

        Raises:
            StoreCorruptedError: An open page has no rows.
        """
        self = cls(policy, device_id)
        highest_ms, released_ms, entered_count, arrivals, headers, held, uids = exported
        self._highest_ms, self._released_ms = highest_ms, released_ms
        self._arrivals = arrivals
        if held:
            self._held = HeldEvents(self._bound_ms)
            for number, *fields in held:
                self._held.hold(number, Event(*fields))
        self._uids = dict(uids)
        self._forget_at = max(_FORGET_AT, 2 * len(self._uids))
        self._pages.restore(entered_count, headers, rows)
        self.settle()
        return self

    def take_changes(self) -> tuple[list[tuple[int, int, EventRow]], list[tuple[int, int]]]:
        """Return what the store must learn, and regard it as stored.

        Returns:
            New event rows of open pages as (ordinal, index, row), and pages
            with stored rows that are closed, as (ordinal, stored row count).
        """
        return self._pages.take_changes()

    # Inside

    def _accept_out_of_order(self, event: Event, sink: SequenceSink) -> None:
        held = self._held
        if held is None:
            held = self._held = HeldEvents(self._bound_ms)
            queue, self._queue = self._queue, []
            for number, waiting in enumerate(queue, self._arrivals - len(queue)):
                held.hold(number, waiting)
        held.hold(self._arrivals, event)
        self._arrivals += 1
        self._release(held.release_until(self._highest_ms - self._bound_ms), sink)
        held_ms = NEVER_MS if self._held is None else held.due_ms
        self.due_ms = min(held_ms, self._pages.due_ms)

    def _release_due(self, sink: SequenceSink) -> None:
        if self._held is not None:
            self._release(self._held.release_due(), sink)

    def _release(self, events: list[Event], sink: SequenceSink) -> None:
        if self._held is not None and self._held.due_ms == NEVER_MS:
            self._held = None
        for event in events:
            self._released_ms = event.event_time_ms
            self._pages.take(event, sink)

    def _forget(self) -> None:
        # now and then: a look at all costs as much as there are
        oldest_ms = self._oldest_uid_ms()
        self._uids = uids = {uid: ms for uid, ms in self._uids.items() if ms >= oldest_ms}
        self._forget_at = max(_FORGET_AT, 2 * len(uids))

    def _oldest_uid_ms(self) -> int:
        # an event below both can only come again as late
        oldest_ms = self._highest_ms - self._bound_ms
        return oldest_ms if oldest_ms < self._released_ms else self._released_ms
