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
from walle_stream.stream.ordering import HeldEvents, SeenUids
from walle_stream.stream.pages import EventRow

PAGE_MAX_EVENTS_DEFAULT: Final = 10_000
"""Most events of one page when the policy does not say."""

_NEVER: Final = 1 << 62


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
    """State of one device's sequences. One thread."""

    __slots__ = (
        "_bound_ms",
        "_held",
        "_highest_ms",
        "_pages",
        "_released_ms",
        "_uids",
        "next_deadline_ms",
    )

    def __init__(self, policy: SequencePolicy, device_id: str = "") -> None:
        """Start a device that was never seen.

        Args:
            policy: How sequences are built; the same for the device's life.
            device_id: The device, for the exits made by time-outs.
        """
        self._bound_ms = policy.out_of_order_ms
        self._highest_ms = -_NEVER
        self._released_ms = -_NEVER
        self._held: HeldEvents | None = HeldEvents(self._bound_ms) if self._bound_ms else None
        self._uids: SeenUids | None = None
        self._pages = OpenPages(
            policy.page_timeout_ms, policy.page_max_events, policy.fields, device_id
        )
        self.next_deadline_ms: int | None = None
        """Ingest watermark before which ``advance`` has nothing to do."""

    # Events and time

    def accept(self, event: Event, watermark_ms: int, sink: SequenceSink) -> None:
        """Take the device's next event, after firing the timers that are due.

        Args:
            event: The event; its ingest time is at most the watermark.
            watermark_ms: Highest ingest time of the partition, this event's
                included; never lower than before.
            sink: Gets what follows from it.
        """
        deadline_ms = self.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= watermark_ms:
            self.advance(watermark_ms, sink)
        uid = event.uid
        if uid and self._is_known(uid):
            sink.duplicate(event)
            return
        time_ms = event.event_time_ms
        if time_ms < self._released_ms:
            sink.late(event)
            return
        held, pages = self._held, self._pages
        if held is None:
            self._highest_ms = self._released_ms = time_ms
            pages.take(event, sink)
            self.next_deadline_ms = pages.deadline_ms
        else:
            held.hold(event)
            # not max(): a call per event on the hottest path
            if time_ms > self._highest_ms:  # noqa: PLR1730
                self._highest_ms = time_ms
            released = held.release_until(self._highest_ms - self._bound_ms)
            if released:
                self._release(released, sink)
            deadline_ms, page_ms = held.deadline_ms, pages.deadline_ms
            self.next_deadline_ms = (
                page_ms
                if deadline_ms is None or (page_ms is not None and page_ms < deadline_ms)
                else deadline_ms
            )
        if uid:
            self._remember(uid, time_ms)

    def advance(self, watermark_ms: int, sink: SequenceSink) -> None:
        """Fire the timers that are due, in the order of their deadlines.

        Of one deadline, held events come before pages, and pages in the order
        of their enters.

        Args:
            watermark_ms: The partition's ingest watermark.
            sink: Gets released events and closed pages.
        """
        held, pages = self._held, self._pages
        while True:
            held_ms = None if held is None else held.deadline_ms
            page_ms = pages.deadline_ms
            if page_ms is not None and page_ms <= watermark_ms:
                page_ms = pages.settle()  # it may be later than remembered
            if held_ms is not None and (page_ms is None or held_ms <= page_ms):
                if held_ms > watermark_ms:
                    break
                self._release(held.release_due(), sink)  # type: ignore[union-attr]
            elif page_ms is not None and page_ms <= watermark_ms:
                pages.close_first(sink)
            else:
                break
        self.next_deadline_ms = (
            held_ms
            if page_ms is None or (held_ms is not None and held_ms < page_ms)
            else page_ms
        )

    def finish(self, sink: SequenceSink) -> None:
        """Fire every timer: the natural end of a bounded source."""
        self.advance(_NEVER, sink)

    def settle(self) -> int | None:
        """Make ``next_deadline_ms`` exact and return it.

        Exact is what goes to the store: it depends on the events alone, while what is
        remembered meanwhile depends on when somebody looked.
        """
        page_ms = self._pages.settle()
        held_ms = None if self._held is None else self._held.deadline_ms
        deadline_ms = page_ms
        if held_ms is not None and (page_ms is None or held_ms < page_ms):
            deadline_ms = held_ms
        self.next_deadline_ms = deadline_ms
        return deadline_ms

    # Rest and activation

    def export(self) -> tuple[Any, ...]:
        """Return everything but the rows of open pages, as plain values.

        Returns:
            (highest event time seen, highest released, pages entered, events
            held so far, headers of open pages, held events, uids seen).
        """
        arrivals, held = (0, []) if self._held is None else self._held.export()
        return (
            self._highest_ms,
            self._released_ms,
            self._pages.entered_count,
            arrivals,
            self._pages.export(),
            held,
            [] if self._uids is None else self._uids.export(self._oldest_uid_ms()),
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
        if held or self._bound_ms:
            self._held = HeldEvents.restore(self._bound_ms, arrivals, held)
        if uids:
            self._uids = SeenUids(uids)
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

    def _release(self, events: list[Event], sink: SequenceSink) -> None:
        for event in events:
            self._released_ms = event.event_time_ms
            self._pages.take(event, sink)

    def _is_known(self, uid: str) -> bool:
        if self._uids is None:
            return False
        time_ms = self._uids.time_of(uid)
        return time_ms is not None and time_ms >= self._oldest_uid_ms()

    def _remember(self, uid: str, time_ms: int) -> None:
        if self._uids is None:
            self._uids = SeenUids()
        self._uids.add(uid, time_ms, self._oldest_uid_ms())

    def _oldest_uid_ms(self) -> int:
        # an event below both can only come again as late
        return min(self._highest_ms - self._bound_ms, self._released_ms)
