"""The job that all peers do: item page views of ``configs/shop.py``, in plain Python.

A ``Visitor`` puts one device's events in order and into pages; each peer keeps
visitors and counts in the way that is natural there. Also read by Python 3.12.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from walle_stream.events import Event
from walle_stream.types import PARTITION_COUNT_DEFAULT, partition_of

_TIMEOUT_MS: Final = 1_800_000
_PAGE_MAX_EVENTS: Final = 10_000
_UIDS_MAX: Final = 64
_NEVER_MS: Final = 1 << 62

decode_event: Final = msgspec.json.Decoder(Event).decode
"""Bytes of one JSON line to an ``Event``; what the event does not have is skipped."""

_time_of = itemgetter(0)


class Page(NamedTuple):
    """A visit of a page."""

    page_id: str
    instance: str
    enter_ms: int
    rows: list[Any]
    """(kind, event time, contents); the enter first, the exit last."""
    end: list[Any]
    """The highest ingest time, from which the time-out counts, and why the page ended."""


class Watermarks:
    """How far the ingest time of each partition has come."""

    def __init__(self, partitions: int = PARTITION_COUNT_DEFAULT) -> None:
        """Begin before all time."""
        self._homes: dict[str, int] = {}
        self._highest = [-1] * partitions

    def of(self, event: Event) -> int:
        """Take the next event and return its partition's watermark."""
        home = self._homes.get(event.device_id)
        if home is None:
            home = partition_of(event.device_id, len(self._highest))
            self._homes[event.device_id] = home
        self._highest[home] = max(self._highest[home], event.ingest_time_ms)
        return self._highest[home]


class Visitor:
    """One device: events ordered within some time, each uid once, pages that nest."""

    order_ms: ClassVar[int] = 2_000
    """How far behind events may come."""

    __slots__ = ("_deadline_ms", "_held", "_highest_ms", "_pages", "_released_ms", "_uids")

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._highest_ms = self._released_ms = -1
        self._held: list[tuple[int, int, Event]] = []  # event time, deadline
        self._uids: dict[str, int] = {}
        self._pages: dict[tuple[str, str], Page] = {}
        self._deadline_ms = _NEVER_MS

    def accept(self, event: Event, watermark_ms: int) -> list[Page]:
        """Take the device's next event.

        Returns:
            The pages that ended.
        """
        closed: list[Page] = []
        if self._deadline_ms <= watermark_ms:
            self._advance(watermark_ms, closed)
        time_ms, uid, uids = event.event_time_ms, event.uid, self._uids
        if time_ms < self._released_ms:
            return closed
        seen_ms = uids.get(uid)
        if seen_ms is not None and seen_ms >= self._oldest_ms():
            return closed
        held = self._held
        deadline_ms = event.ingest_time_ms + self.order_ms
        if time_ms >= self._highest_ms:
            self._highest_ms = time_ms
            held.append((time_ms, deadline_ms, event))
        else:
            insort(held, (time_ms, deadline_ms, event), key=_time_of)
        self._deadline_ms = min(self._deadline_ms, deadline_ms)
        if held[0][0] <= self._highest_ms - self.order_ms:
            self._release(
                bisect_right(held, self._highest_ms - self.order_ms, key=_time_of), closed
            )
        if uid:
            uids[uid] = time_ms
            if len(uids) > _UIDS_MAX:
                oldest_ms = self._oldest_ms()
                self._uids = {name: at for name, at in uids.items() if at >= oldest_ms}
        return closed

    def finish(self) -> list[Page]:
        """Release and close everything: the end of the input."""
        closed: list[Page] = []
        self._advance(_NEVER_MS - 1, closed)
        return closed

    def export(self) -> list[Any]:
        """Return everything as JSON values."""
        held = [[*row[:2], msgspec.structs.astuple(row[2])] for row in self._held]
        pages = [list(page) for page in self._pages.values()]
        return [self._highest_ms, self._released_ms, held, self._uids, pages, self._deadline_ms]

    @classmethod
    def restore(cls, exported: list[Any]) -> "Visitor":
        """Make the visitor that ``export`` described."""
        self = cls()
        self._highest_ms, self._released_ms, held, self._uids, pages, self._deadline_ms = exported
        self._held = [(time_ms, deadline, Event(*fields)) for time_ms, deadline, fields in held]
        self._pages = {(page[0], page[1]): Page(*page) for page in pages}
        return self

    def _oldest_ms(self) -> int:
        # below both, an event can only be late
        return min(self._highest_ms - self.order_ms, self._released_ms)

    def _advance(self, watermark_ms: int, closed: list[Page]) -> None:
        # the deadline that is kept may be earlier than the true one, never later
        while True:
            deadline_ms, at, due = _NEVER_MS, 0, None
            for number, row in enumerate(self._held, 1):
                if row[1] < deadline_ms:
                    deadline_ms, at = row[1], number
            for page in self._pages.values():
                if page.end[0] + _TIMEOUT_MS < deadline_ms:
                    deadline_ms, due = page.end[0] + _TIMEOUT_MS, page
            if deadline_ms > watermark_ms:
                self._deadline_ms = deadline_ms
                return
            if due is None:
                self._release(at, closed)
            else:
                self._close(due, due.rows[-1][1], "timeout", closed)

    def _release(self, count: int, closed: list[Page]) -> None:
        for time_ms, _, event in self._held[:count]:
            self._released_ms = time_ms
            self._take(event, closed)
        del self._held[:count]

    def _take(self, event: Event, closed: list[Page]) -> None:
        key, time_ms = (event.page_id, event.page_instance), event.event_time_ms
        page = self._pages.get(key)
        if event.kind == "page_enter":
            if page is not None:
                self._close(page, time_ms, "reenter", closed)
            page = self._pages[key] = Page(*key, time_ms, [], [-1, ""])
            self._deadline_ms = min(self._deadline_ms, event.ingest_time_ms + _TIMEOUT_MS)
        elif page is None and not event.page_instance:
            same = (each for each in reversed(self._pages.values()) if each[0] == key[0])
            page = next(same, None)
        if page is None:
            return
        if event.kind == "page_exit":
            self._close(page, time_ms, "exit", closed)
        elif len(page.rows) == _PAGE_MAX_EVENTS:
            self._close(page, time_ms, "overflow", closed)
        else:
            page.rows.append((event.kind, time_ms, event.contents))
            page.end[0] = max(page.end[0], event.ingest_time_ms)

    def _close(self, page: Page, time_ms: int, cause: str, closed: list[Page]) -> None:
        page.end[1] = cause
        page.rows.append(("page_exit", time_ms, None))
        del self._pages[page.page_id, page.instance]
        closed.append(page)


def read_events(path: Path) -> Iterator[Event]:
    """Iterate over the events of a file of JSON Lines."""
    with path.open("rb") as file:
        yield from map(decode_event, file)
