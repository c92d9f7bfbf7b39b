"""Open pages: the page-level sequence of a visit while it lasts.

Rows of events are tuples of plain values, projected to the contents that the
installed tasks read. The store appends these rows, and the VMs get them.
Invariant: a page's rows only grow while it is open, and never change later. So a
receiver of an open page gets the page's own rows and the number to use.
Place in the data flow: ``OpenPages`` makes pages; the machine and the store read them.
"""

from typing import Any

import msgspec

from walle_stream.events import Event
from walle_stream.wire.page_rows import PageRows

type EventRow = tuple[str, str, int, int, dict[str, Any] | None]
"""(id, kind, event_time_ms, ingest_time_ms, contents)."""

type PageInput = tuple[str, str, str, int | None, None, list[EventRow]] | tuple[PageRows, int]
"""Input of a run, with the row of the waking event last. An ended page is (page_id, page_instance,
cause, enter_time_ms, None, rows). An open page is its rows and the number of rows to use."""

type ToldInput = list[Any]
"""Input of a run that a reply wakes, [call, service, error, JSON bytes], or a message,
[sender, number, JSON bytes]."""


class OpenPage:
    """One visit of a page, from its enter on."""

    __slots__ = (
        "cause",
        "enter_time_ms",
        "events",
        "ordinal",
        "page_id",
        "page_instance",
        "persisted_count",
        "rows",
    )

    def __init__(self, page_id: str, page_instance: str, ordinal: int, enter_time_ms: int) -> None:
        """Open a page; ``ordinal`` is the device's counter of entered pages, from 1."""
        self.page_id = page_id
        self.page_instance = page_instance
        self.ordinal = ordinal
        self.enter_time_ms = enter_time_ms
        self.events: list[EventRow] = []
        """Rows, the enter first; a closed page's last row is its exit."""
        self.rows: PageRows | None = None
        """The same rows for runs, while the page is open and has woken a task."""
        self.cause = "open"
        """Cause of the end: ``exit``, ``timeout``, ``reenter``, ``overflow``."""
        self.persisted_count = 0
        """Number of rows that are in the store."""


def event_row(event: Event, fields: frozenset[str] | None) -> EventRow:
    """Project an event to a row with these fields of its contents (None for all)."""
    contents = event.contents
    # usually all fields are wanted, and no copy is needed, because events never change
    if fields is not None and contents and not fields.issuperset(contents):
        contents = {name: contents[name] for name in contents if name in fields}
    return (event.id, event.kind, event.event_time_ms, event.ingest_time_ms, contents or None)


def page_input(event: Event, page: OpenPage | None, fields: frozenset[str] | None) -> PageInput:
    """Return the input of a task's script for an event that wakes it.

    Without a page, which was never entered, the event is alone with the cause ``none``. Fields are
    as in ``event_row``.
    """
    if page is None:
        row = event_row(event, fields)
        return (event.page_id, event.page_instance, "none", None, None, [row])
    if page.cause == "open":
        head = (page.page_id, page.page_instance, "open", page.enter_time_ms)
        page.rows = PageRows(head, page.events)
        return (page.rows, len(page.events))
    return (page.page_id, page.page_instance, page.cause, page.enter_time_ms, None, page.events)


def plain_page(page: PageInput | ToldInput) -> Any:
    """Return a run's input as plain values, for people."""
    if isinstance(page, list):
        return [*page[:-1], msgspec.Raw(page[-1])]
    if len(page) != 2:  # noqa: PLR2004 - an open page's
        return page
    rows: PageRows = page[0]
    return (*rows.head, None, rows.rows[: page[1]])
