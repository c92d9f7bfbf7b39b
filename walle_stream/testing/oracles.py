"""Oracles of the stream core: the same answers, computed in the plainest way.

``NaiveTriggers`` and ``NaiveSequence`` follow the rules alone and share no code with the checked
implementation. They keep all events and search through all of them at each step. A test feeds the
same stream to an oracle and to an implementation and compares the results. A ``RecordingSink``
records the reports of a ``DeviceSequence``. Other trigger stores and sequence builders can be
tested the same way.
"""

from collections.abc import Sequence
from typing import Any

from walle_stream.events import Event
from walle_stream.stream.pages import OpenPage

type SequenceRecord = tuple[Any, ...]
"""One call of a sequence's sink: its name, then its arguments. A page is recorded as
(page_id, page_instance, ordinal, cause, enter_time_ms, rows)."""


class NaiveTriggers:
    """Oracle of the tasks that one device's events wake; it remembers every event.

    A task fires when the last events match one of its conditions, id by id. The beginning of a
    match counts only if some condition installed at that time had this beginning and continued
    after it. So a task that is inserted in the middle of a match sees the earlier events only if
    another task already had the same beginning.
    """

    def __init__(self) -> None:
        """Start without tasks and without events."""
        self._installed: list[tuple[str, tuple[str, ...]]] = []
        self._past: list[tuple[set[str], list[tuple[str, ...]]]] = []

    def insert(self, task: str, condition: Sequence[str]) -> None:
        """Add a condition of a task."""
        self._installed.append((task, tuple(condition)))

    def remove(self, task: str) -> None:
        """Remove all conditions of a task."""
        self._installed = [item for item in self._installed if item[0] != task]

    def advance(self, event_id: str, page_id: str) -> tuple[str, ...]:
        """Take the next event and return the tasks that it wakes: sorted, each once."""
        self._past.append(({event_id, page_id}, [condition for _, condition in self._installed]))
        fired = {task for task, condition in self._installed if self._is_matched(condition)}
        return tuple(sorted(fired))

    def _is_matched(self, condition: tuple[str, ...]) -> bool:
        if len(self._past) < len(condition):
            return False
        window = self._past[-len(condition) :]
        for matched, trigger_id in enumerate(condition, start=1):
            ids, then_installed = window[matched - 1]
            if trigger_id not in ids:
                return False
            if matched < len(condition):
                begun = condition[:matched]
                if not any(c[:matched] == begun and len(c) > matched for c in then_installed):
                    return False
        return True


class RecordingSink:
    """A ``SequenceSink`` that records every call."""

    def __init__(self) -> None:
        """Start with nothing recorded."""
        self.records: list[SequenceRecord] = []

    def event(self, event: Event, page: OpenPage | None) -> bool:
        """Record an event with a copy of its page."""
        self.records.append(("event", event, None if page is None else _page_now(page)))
        return True

    def closed(self, cause: str) -> None:
        """Record the end of a page."""
        self.records.append(("closed", cause))

    def duplicate(self, event: Event) -> None:
        """Record a duplicate."""
        self.records.append(("duplicate", event))

    def late(self, event: Event) -> None:
        """Record a late event."""
        self.records.append(("late", event))

    def missing_enter(self, event: Event) -> None:
        """Record an exit without enter."""
        self.records.append(("missing_enter", event))


class NaiveSequence:
    """Oracle of one device's event sequences; ``records`` has the calls of a sink."""

    def __init__(
        self,
        page_timeout_ms: int | None = None,
        out_of_order_ms: int = 0,
        page_max_events: int = 10_000,
        fields: frozenset[str] | None = None,
        device_id: str = "",
    ) -> None:
        """Start a device that was never seen; see ``SequencePolicy``."""
        self.records: list[SequenceRecord] = []
        self._timeout_ms = page_timeout_ms
        self._bound_ms = out_of_order_ms
        self._max_events = page_max_events
        self._fields = fields
        self._device_id = device_id
        self._taken: list[Event] = []  # neither late nor duplicate, in arrival order
        self._waiting: list[Event] = []
        self._released: list[Event] = []
        self._pages: list[dict[str, Any]] = []  # all pages so far, in the order of enters

    def accept(self, event: Event, watermark_ms: int) -> None:
        """Take the next event of the partition's order."""
        self.advance(watermark_ms)
        if event.uid and self._has_seen(event.uid):
            self.records.append(("duplicate", event))
            return
        if any(event.event_time_ms < other.event_time_ms for other in self._released):
            self.records.append(("late", event))
            return
        self._taken.append(event)
        self._waiting.append(event)
        highest_ms = max(other.event_time_ms for other in self._taken)
        for waiting in self._in_order():
            if waiting.event_time_ms <= highest_ms - self._bound_ms:
                self._release(waiting)

    def advance(self, watermark_ms: float) -> None:
        """Fire the timers up to a watermark, one at a time, in order of time."""
        while True:
            timers: list[tuple[int, int, int, Any]] = []
            for number, event in enumerate(self._in_order()):
                timers.append((event.ingest_time_ms + self._bound_ms, 0, number, event))
            if self._timeout_ms is not None:
                for page in self._pages:
                    if page["cause"] == "open":
                        last_ms = max(row[3] for row in page["rows"])
                        timers.append((last_ms + self._timeout_ms, 1, page["ordinal"], page))
            if not timers:
                return
            deadline_ms, is_page, number, subject = min(timers, key=lambda timer: timer[:3])
            if deadline_ms > watermark_ms:
                return
            if is_page:
                self._close(subject, subject["rows"][-1][2], deadline_ms, "timeout")
            else:
                for event in self._in_order()[: number + 1]:
                    self._release(event)

    def finish(self) -> None:
        """Fire all timers."""
        self.advance(float("inf"))

    def _in_order(self) -> list[Event]:
        return sorted(self._waiting, key=lambda event: event.event_time_ms)  # stable

    def _has_seen(self, uid: str) -> bool:
        # within the order bound, or older if no later event was released yet
        highest_ms = max((event.event_time_ms for event in self._taken), default=0)
        horizon_ms = max((event.event_time_ms for event in self._released), default=None)
        oldest_ms = highest_ms - self._bound_ms
        for event in self._taken:
            is_in_reach = event.event_time_ms >= oldest_ms
            can_return = horizon_ms is None or event.event_time_ms >= horizon_ms
            if event.uid == uid and (is_in_reach or can_return):
                return True
        return False

    def _release(self, event: Event) -> None:
        self._waiting = [other for other in self._waiting if other is not event]
        self._released.append(event)
        same = [
            page
            for page in self._pages
            if page["cause"] == "open"
            and page["page_id"] == event.page_id
            and (page["instance"] == event.page_instance or not event.page_instance)
        ]
        if event.kind == "page_enter":
            for page in same:
                if page["instance"] == event.page_instance:
                    self._close(page, event.event_time_ms, event.ingest_time_ms, "reenter")
            same = [self._open(event)]
        if not same:
            if event.kind == "page_exit":
                self.records.append(("missing_enter", event))
            self.records.append(("event", event, None))
        elif event.kind == "page_exit":
            self._put(same[-1], event, "exit")
            self.records.append(("closed", "exit"))
        elif len(same[-1]["rows"]) == self._max_events:
            self._close(same[-1], event.event_time_ms, event.ingest_time_ms, "overflow")
            self.records.append(("event", event, None))
        else:
            self._put(same[-1], event, "open")

    def _open(self, event: Event) -> dict[str, Any]:
        page: dict[str, Any] = {
            "page_id": event.page_id,
            "instance": event.page_instance,
            "ordinal": len(self._pages) + 1,
            "enter_time_ms": event.event_time_ms,
            "cause": "open",
            "rows": [],
        }
        self._pages.append(page)
        return page

    def _close(self, page: dict[str, Any], time_ms: int, ingest_ms: int, cause: str) -> None:
        event = Event(
            self._device_id,
            id="page_exit",
            kind="page_exit",
            page_id=page["page_id"],
            page_instance=page["instance"],
            event_time_ms=time_ms,
            ingest_time_ms=ingest_ms,
        )
        self._put(page, event, cause)
        self.records.append(("closed", cause))

    def _put(self, page: dict[str, Any], event: Event, cause: str) -> None:
        fields = self._fields
        contents = {
            name: value
            for name, value in event.contents.items()
            if fields is None or name in fields
        }
        row = (event.id, event.kind, event.event_time_ms, event.ingest_time_ms, contents or None)
        page["rows"].append(row)
        page["cause"] = cause
        page_now = (
            page["page_id"],
            page["instance"],
            page["ordinal"],
            cause,
            page["enter_time_ms"],
            list(page["rows"]),
        )
        self.records.append(("event", event, page_now))


def _page_now(page: OpenPage) -> SequenceRecord:
    return (
        page.page_id,
        page.page_instance,
        page.ordinal,
        page.cause,
        page.enter_time_ms,
        list(page.events),
    )
