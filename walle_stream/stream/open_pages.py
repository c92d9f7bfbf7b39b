"""The page level of one device: the assignment of events to open pages.

Events come ordered from ``DeviceSequence``, and leave through the sink with their
page. Pages may nest, interleave and be entered again. A page that ends without an
exit event (timeout, re-entry, too many events) gets a synthetic ``page_exit``, which
is handled like a natural one.

Invariants: an event is in at most one page. An open page has at least its enter. No
page times out before ``due_ms``, which is not updated at every event, but only at a
check, because timeouts are rare.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

from walle_stream.errors import StoreCorruptedError
from walle_stream.events import Event
from walle_stream.stream.ordering import NEVER_MS
from walle_stream.stream.pages import EventRow, OpenPage, event_row


class _EveryId:
    def __contains__(self, _: object) -> bool:
        return True


EVERY_ID: Final[Container[str]] = _EveryId()
"""Contains every id, so that every event matters."""

type PageHeader = tuple[str, str, int, int]
"""An open page without its rows: (page_id, page_instance, ordinal, enter_time_ms)."""


class PageSink(Protocol):
    """Receiver of the page level's reports, in order."""

    def event(self, event: Event, page: OpenPage | None) -> bool:
        """Take the device's next event, if it may matter (see ``OpenPages``).

        Args:
            event: The source's event, or a synthetic ``page_exit``.
            page: The event's page, which has its row already. If the event ends
                the page, ``page.cause`` has the reason. None for an event on a
                page that was never entered.

        Returns:
            Whether the next event matters in any case.
        """

    def closed(self, cause: str) -> None:
        """Note that a page was closed after its last event, by a cause of ``PageInput``."""

    def missing_enter(self, event: Event) -> None:
        """Note an exit without an enter; ``event`` follows, without page."""


class OpenPages:
    """The open pages of one device, in the order of their enters; for one thread."""

    __slots__ = (
        "_by_key",
        "_closed",
        "_device_id",
        "_fields",
        "_first",
        "_ids",
        "_is_watched",
        "_max_events",
        "_timeout_ms",
        "due_ms",
        "entered_count",
        "position",
        "wake_id",
        "wake_page",
        "wakes",
    )

    def __init__(
        self,
        timeout_ms: int | None,
        max_events: int,
        fields: frozenset[str] | None,
        device_id: str = "",
        ids: Container[str] = EVERY_ID,
    ) -> None:
        """Start a device without open pages.

        Args:
            timeout_ms: Ingest time without an event after which a page is
                closed; None for never.
            max_events: Most rows of a page before its exit, ≥ 1.
            fields: Contents to keep in rows; None keeps all.
            device_id: The device, for exits by timeouts.
            ids: Event and page ids that matter. The sink gets other events only
                if it asked for them. The ids may change later.
        """
        self._ids = ids
        self._is_watched = True
        self._timeout_ms = timeout_ms
        self._max_events = max_events
        self._fields = fields
        self._device_id = device_id
        self._by_key: dict[tuple[str, str], OpenPage] = {}
        self._first: OpenPage | None = None  # the page that times out first
        self._closed: list[tuple[int, int]] = []
        self.entered_count = 0
        """Number of pages entered so far, which is the last ordinal."""
        self.position = 0
        """Number of taken events, synthetic exits included."""
        self.due_ms = NEVER_MS
        """Ingest watermark before which no page times out; exact after ``settle``."""
        self.wake_page: OpenPage | None = None
        """The sink may set these three. A further event ``wake_id`` of this open page then does
        not reach the sink; its run is appended to each of ``wakes``."""
        self.wake_id = ""
        self.wakes: list[list[Any]] = []

    def change(self, fields: frozenset[str] | None, ids: Container[str]) -> None:
        """Set new contents to keep and new ids that matter, from the next event on."""
        self._fields, self._ids = fields, ids

    def take(self, event: Event, sink: PageSink) -> None:
        """Put the next event into its page, and give both to the sink."""
        kind = event.kind
        if kind == "page_enter":
            self._enter(event, sink)
            return
        page_id, instance = event.page_id, event.page_instance
        page = self._by_key.get((page_id, instance)) if instance else self._latest(page_id)
        if page is None:
            if kind == "page_exit":
                sink.missing_enter(event)
            self._give(event, None, sink)
        elif kind == "page_exit":
            self._end(page, event, "exit", sink)
        elif len(page.events) < self._max_events:
            # event_row inlined, for the most common event
            contents, fields = event.contents, self._fields
            if fields is not None and contents and not fields.issuperset(contents):
                contents = {name: contents[name] for name in contents if name in fields}
            event_id = event.id
            page.events.append(
                (event_id, kind, event.event_time_ms, event.ingest_time_ms, contents or None)
            )
            self.position += 1
            ids = self._ids
            if self._is_watched or event_id in ids or page_id in ids:
                if page is self.wake_page and event_id == self.wake_id and not self._is_watched:
                    run = (self.position, event.event_time_ms, (page.rows, len(page.events)))
                    for runs in self.wakes:
                        runs.append(run)
                else:
                    self._is_watched = sink.event(event, page)
        else:
            self._end(page, _exit_before(event, page), "overflow", sink)
            self._give(event, None, sink)

    def close_first(self, sink: PageSink) -> None:
        """Close the page with the first timeout, as of that moment.

        The synthetic exit has the event time of the page's last event, and the ingest time of the
        deadline, which ``settle`` must have made exact.
        """
        page = self._first
        if page is not None:
            exit_event = _exit(self._device_id, page, page.events[-1][2], self.due_ms)
            self._end(page, exit_event, "timeout", sink)

    def settle(self) -> int:
        """Make ``due_ms`` exact and return it; reads each row of the open pages."""
        if self._timeout_ms is None or not self._by_key:
            self._first, self.due_ms = None, NEVER_MS
        else:
            (last_ms, _), self._first = min(
                ((_timer_order(page), page) for page in self._by_key.values()), key=itemgetter(0)
            )
            self.due_ms = last_ms + self._timeout_ms
        return self.due_ms

    def take_changes(self) -> tuple[list[tuple[int, int, EventRow]], list[tuple[int, int]]]:
        """Return changes for the store, and mark them as stored.

        New event rows of open pages are (ordinal, index, row). Closed pages with stored rows are
        (ordinal, stored row count).
        """
        new_rows = []
        for page in self._by_key.values():
            events = page.events
            first = page.persisted_count
            if first < len(events):
                ordinal = page.ordinal
                new_rows += [(ordinal, index, events[index]) for index in range(first, len(events))]
                page.persisted_count = len(events)
        closed, self._closed = self._closed, []
        return new_rows, closed

    def export(self) -> list[PageHeader]:
        """Return the open pages without their rows, in the order of enters."""
        return [
            (page.page_id, page.page_instance, page.ordinal, page.enter_time_ms)
            for page in self._by_key.values()
        ]

    def restore(
        self,
        entered_count: int,
        headers: Iterable[PageHeader],
        rows: Mapping[int, Sequence[EventRow]],
    ) -> None:
        """Reopen the pages from ``export``; only on a new object.

        ``rows`` has all stored rows of these pages by ordinal, in row order.

        Raises:
            StoreCorruptedError: A page has no rows.
        """
        self.entered_count = entered_count
        for page_id, instance, ordinal, enter_time_ms in headers:
            page = OpenPage(page_id, instance, ordinal, enter_time_ms)
            page.events = list(rows.get(ordinal, ()))
            if not page.events:
                raise StoreCorruptedError(
                    f"device {self._device_id!r}: open page {page_id!r}/{instance!r} (number "
                    f"{ordinal}) has no stored rows: restore the data directory from a copy"
                )
            page.persisted_count = len(page.events)
            self._by_key[page_id, instance] = page
        self.settle()

    def _enter(self, event: Event, sink: PageSink) -> None:
        key = (event.page_id, event.page_instance)
        page = self._by_key.get(key)
        if page is not None:
            self._end(page, _exit_before(event, page), "reenter", sink)
        self.entered_count += 1
        page = OpenPage(event.page_id, event.page_instance, self.entered_count, event.event_time_ms)
        self._by_key[key] = page
        page.events.append(event_row(event, self._fields))
        if self._timeout_ms is not None:
            due_ms = event.ingest_time_ms + self._timeout_ms
            if due_ms < self.due_ms:
                self.due_ms = due_ms
        self._give(event, page, sink)

    def _give(self, event: Event, page: OpenPage | None, sink: PageSink) -> None:
        self.position += 1
        if self._is_watched or event.id in self._ids or event.page_id in self._ids:
            self._is_watched = sink.event(event, page)

    def _end(self, page: OpenPage, event: Event, cause: str, sink: PageSink) -> None:
        page.cause, page.rows = cause, None
        page.events.append(event_row(event, self._fields))
        self._give(event, page, sink)
        sink.closed(cause)
        del self._by_key[page.page_id, page.page_instance]
        if page.persisted_count:
            self._closed.append((page.ordinal, page.persisted_count))
        if not self._by_key:
            self.due_ms = NEVER_MS

    def _latest(self, page_id: str) -> OpenPage | None:
        for page in reversed(self._by_key.values()):
            if page.page_id == page_id:
                return page
        return None


def _timer_order(page: OpenPage) -> tuple[int, int]:
    return max(row[3] for row in page.events), page.ordinal


def _exit_before(event: Event, page: OpenPage) -> Event:
    return _exit(event.device_id, page, event.event_time_ms, event.ingest_time_ms)


def _exit(device_id: str, page: OpenPage, event_time_ms: int, ingest_time_ms: int) -> Event:
    return Event(
        device_id,
        "page_exit",
        "page_exit",
        page.page_id,
        page.page_instance,
        event_time_ms,
        ingest_time_ms,
    )
