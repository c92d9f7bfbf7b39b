"""Events and lists of events as a script sees them.

An :class:`Event` is a thin view of a row from the host (a tuple of plain values).
It takes about 0.1 us to make, so a page of events costs hardly more than its rows.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Final, SupportsIndex, overload

type EventRow = tuple[str, str, int, int, dict[str, Any] | None]
"""(id, kind, event_time_ms, ingest_time_ms, contents), as the host sends it."""


class Event:
    """An immutable behaviour event."""

    __slots__ = ("_page_", "_row_")

    def __init__(self, row: EventRow, page: tuple[str, str]) -> None:
        """Wrap a row of a page, which is given by id and instance."""
        self._row_ = row
        self._page_ = page

    @property
    def id(self) -> str:
        """The event id that triggers match; the kind unless the source has a finer one."""
        return self._row_[0]

    @property
    def kind(self) -> str:
        """``page_enter``, ``page_scroll``, ``exposure``, ``click`` or ``page_exit``."""
        return self._row_[1]

    @property
    def event_time_ms(self) -> int:
        """Time of the event by the device's clock, in epoch milliseconds."""
        return self._row_[2]

    @property
    def ingest_time_ms(self) -> int:
        """Time of its first storage, in epoch milliseconds."""
        return self._row_[3]

    @property
    def contents(self) -> dict[str, Any]:
        """The event's fields, ``item`` and ``widget`` among them; private to the run."""
        return self._row_[4] or {}

    @property
    def page_id(self) -> str:
        """The page of the app."""
        return self._page_[0]

    @property
    def page_instance(self) -> str:
        """Id of this visit of the page."""
        return self._page_[1]

    @property
    def item(self) -> Any:
        """``contents["item"]``, or None."""
        contents = self._row_[4]
        return contents.get("item") if contents else None

    @property
    def widget(self) -> Any:
        """``contents["widget"]``, or None."""
        contents = self._row_[4]
        return contents.get("widget") if contents else None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field of the contents, or the default if it is missing."""
        contents = self._row_[4]
        return contents.get(name, default) if contents else default

    def __getitem__(self, name: str) -> Any:
        """Return a field of the contents; KeyError when the event has none."""
        return (self._row_[4] or {})[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the contents have a field."""
        return name in (self._row_[4] or {})

    def __repr__(self) -> str:
        """Show kind, time and contents."""
        return f"Event({self.id!r}, {self.kind!r}, {self.event_time_ms}, {self.contents!r})"


_PROPERTIES: Final = frozenset(
    ("id", "kind", "event_time_ms", "ingest_time_ms", "page_id", "page_instance")
)


def _reader(field: str | Callable[[Event], Any]) -> Callable[[Event], Any]:
    if callable(field):
        return field
    name = field
    if name in _PROPERTIES:
        return lambda event: getattr(event, name)
    return lambda event: event.get(name)


class EventList(tuple[Event, ...]):
    """An immutable list of events in order, with Walle's four operators."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Event: ...

    @overload
    def __getitem__(self, index: slice, /) -> "EventList": ...

    def __getitem__(self, index: SupportsIndex | slice, /) -> "Event | EventList":
        """Return one event, or a slice as a list with operators."""
        item = tuple.__getitem__(self, index)
        return EventList(item) if isinstance(item, tuple) else item

    def key_by(self, field: str | Callable[[Event], Hashable]) -> "dict[Any, EventList]":
        """Group by a field.

        Args:
            field: A property of the event (``kind``, ``id``, ...), else a field
                of its contents (None where it is missing), or a function of
                the event.

        Returns:
            The events of each value, in order; values are in the order of
            their first event.
        """
        read = _reader(field)
        groups: dict[Any, list[Event]] = {}
        for event in self:
            groups.setdefault(read(event), []).append(event)
        return {key: EventList(events) for key, events in groups.items()}

    def time_window(self, start_ms: int, end_ms: int) -> "EventList":
        """Keep the events with start_ms ≤ event time < end_ms, in epoch milliseconds."""
        return EventList([event for event in self if start_ms <= event.event_time_ms < end_ms])

    def filter(
        self,
        kind: str | Collection[str] | None = None,
        id: str | Collection[str] | None = None,  # noqa: A002 - the event's own word
        where: Callable[[Event], Any] | None = None,
        **contents: Any,
    ) -> "EventList":
        """Keep the events that meet every given condition.

        Args:
            kind: A kind, or several allowed ones.
            id: An event id, or several allowed ones.
            where: A function of the event.
            **contents: Fields of the contents with their required values.
        """
        events: Iterable[Event] = self
        for name, allowed in (("kind", kind), ("id", id)):
            if allowed is not None:
                values = (allowed,) if isinstance(allowed, str) else allowed
                events = [event for event in events if getattr(event, name) in values]
        for name, value in contents.items():
            events = [event for event in events if name in event and event[name] == value]
        if where is not None:
            events = [event for event in events if where(event)]
        return EventList(events)

    def map(self, function: Callable[[Event], Any]) -> list[Any]:
        """Apply a function to each event, and return the results in order."""
        return [function(event) for event in self]
