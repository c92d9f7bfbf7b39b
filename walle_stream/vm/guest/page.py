"""The page-level sequence of a run."""

from collections.abc import Callable, Hashable
from marshal import loads
from typing import Any

from walle_stream.vm.guest.events import Event, EventList, EventRow

type PageInput = tuple[str, str, str, int | None, Any, list[EventRow] | bytes]
"""(page_id, page_instance, cause, enter_time_ms, place, rows); see ``layout``."""


class Page:
    """One visit of a page, from its enter to the event that woke the task."""

    __slots__ = ("_events_", "_input_", "_rows_", "_trigger_")

    _events_: EventList
    _rows_: list[EventRow]
    _trigger_: Event

    def __init__(self, page: PageInput) -> None:
        """Wrap the input from the host."""
        self._input_ = page

    @property
    def page_id(self) -> str:
        """The page of the app."""
        return self._input_[0]

    @property
    def instance(self) -> str:
        """Id of this visit of the page."""
        return self._input_[1]

    @property
    def cause(self) -> str:
        """Cause of the visit's end.

        ``exit``: the user left; ``timeout``: no event for too long;
        ``reenter``: entered again without an exit; ``overflow``: too many
        events; ``open``: the visit has not ended yet; ``none``: the page was
        never entered, and its only event woke the task.
        """
        return self._input_[2]

    @property
    def is_complete(self) -> bool:
        """Whether the page was entered and has ended, by any cause."""
        return self._input_[3] is not None and self._input_[2] not in {"open", "none"}

    @property
    def enter_time_ms(self) -> int | None:
        """Event time of the enter; None if no enter was seen."""
        return self._input_[3]

    @property
    def exit_time_ms(self) -> int | None:
        """Event time of the end; None if the page is open or was never entered."""
        return None if self._input_[2] in {"open", "none"} else self.rows[-1][2]

    @property
    def dwell_ms(self) -> int | None:
        """Time from enter to end, ≥ 0; None unless the page is complete."""
        enter_ms, exit_ms = self._input_[3], self.exit_time_ms
        return None if enter_ms is None or exit_ms is None else exit_ms - enter_ms

    @property
    def trigger(self) -> Event:
        """The event that woke the task; the page's exit for a task on exits."""
        try:
            return self._trigger_
        except AttributeError:  # the run's first access
            page = self._input_
            event = self._trigger_ = Event(self._last_row(), page[:2])
            return event

    @property
    def events(self) -> EventList:
        """The page's events in order, the waking one last."""
        try:
            return self._events_
        except AttributeError:  # the run's first access
            page = self._input_[:2]
            events = self._events_ = EventList([Event(row, page) for row in self.rows])
            return events

    @property
    def rows(self) -> list[EventRow]:
        """The page's events in order, as plain tuples: the fast way to read all of them.

        Each is (id, kind, event_time_ms, ingest_time_ms, contents or None).
        """
        rows: list[EventRow] | bytes = self._input_[5]
        if isinstance(rows, list):
            return rows
        try:
            return self._rows_
        except AttributeError:  # the run's first access
            unpacked = self._rows_ = _unpacked(self._input_[4], rows)
            # the same row object, so that a script's change of it shows in both places
            unpacked[-1] = self.trigger._row_
            return unpacked

    def key_by(self, field: str | Callable[[Event], Hashable]) -> dict[Any, EventList]:
        """Group the page's events; see ``EventList.key_by``."""
        return self.events.key_by(field)

    def time_window(self, start_ms: int, end_ms: int) -> EventList:
        """Keep the page's events of a period; see ``EventList.time_window``."""
        return self.events.time_window(start_ms, end_ms)

    def filter(self, *conditions: Any, **contents: Any) -> EventList:
        """Keep the page's events that meet every condition; see ``EventList.filter``."""
        return self.events.filter(*conditions, **contents)

    def map(self, function: Callable[[Event], Any]) -> list[Any]:
        """Apply a function to each of the page's events; see ``EventList.map``."""
        return self.events.map(function)

    def _last_row(self) -> EventRow:
        place, rows = self._input_[4:]
        if isinstance(rows, list):
            return rows[-1]
        # the cost does not depend on the length of the page
        row: EventRow = loads(  # noqa: S302 - made by the host
            memoryview(rows)[place[1] : place[2]], allow_code=False
        )
        return row

    def __repr__(self) -> str:
        """Show page, visit and cause."""
        return f"Page({self.page_id!r}, {self.instance!r}, cause={self.cause!r})"


def _unpacked(place: tuple[int, int, int], rows: bytes) -> list[EventRow]:
    # the head of a marshalled list, followed by the host's own bytes
    count, _, end = place
    packed = b"".join((b"[", count.to_bytes(4, "little"), memoryview(rows)[:end]))
    unpacked: list[EventRow] = loads(packed, allow_code=False)  # noqa: S302 - made by the host
    return unpacked
