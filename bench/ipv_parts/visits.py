"""Sessions in the cloud: a device's open pages, as the baseline keeps them. Pure.

This is the usual design if devices only send events. A page begins with its enter, collects its
events, and ends at once with its exit. Its properties:

- An event that comes late is put in its place by its own time while its page is open;
  after the exit it is dropped. Nothing is held back to wait for late events: that would
  delay every feature.
- An event that comes twice (same uid) within an open page counts once.
- Pages may nest and interleave: each visit is a page of its own. An event without a visit
  belongs to the latest open page of its page id. One whose page is not open is dropped.
- A page without an exit ends when it is entered again, or with the device's next event after the
  time-out (in the stream's time, without a timer). A device that never returns leaves its page
  open.
"""

from bisect import insort
from collections.abc import Collection
from operator import itemgetter
from typing import Any, Final

import msgspec

from walle_stream.events import Kind

type Row = tuple[str, str, int, int, dict[str, Any] | None]
"""(id, kind, event_time_ms, ingest_time_ms, contents), as tasks see it."""

_time_of: Final = itemgetter(2)


class RawEvent(msgspec.Struct, gc=False):
    """An event as it lies in the topic of raw events; what else is there is skipped."""

    kind: Kind
    page_id: str
    event_time_ms: int
    id: str = ""
    page_instance: str = ""
    contents: dict[str, Any] = {}
    uid: str = ""


class OpenVisit(msgspec.Struct, array_like=True):
    """One visit of a page."""

    page_id: str
    instance: str
    last_ingest_ms: int
    rows: list[Row]
    """By event time; the enter first, the exit last."""
    uids: list[str]
    cause: str = "open"
    """Why it ended: ``exit``, ``timeout``, ``reenter``, ``overflow``."""


class VisitPolicy(msgspec.Struct, frozen=True):
    """What counts as a visit."""

    page_timeout_ms: int | None
    """A page without events for so long has ended; None never."""
    page_max_events: int
    pages: frozenset[str] | None = None
    """Only visits of these; None for all."""
    fields: frozenset[str] | None = None
    """Contents that are kept; None for all."""


class DeviceVisits(msgspec.Struct, array_like=True):
    """The open pages of one device; starts empty."""

    visits: list[OpenVisit] = []
    """In the order in which they were entered."""

    def accept(self, event: RawEvent, ingest_ms: int, policy: VisitPolicy) -> list[OpenVisit]:
        """Take the device's next event, in the topic's order; return the visits that ended.

        ``ingest_ms`` is the record's time.
        """
        ended = self._time_out(ingest_ms, policy)
        if policy.pages is not None and event.page_id not in policy.pages:
            return ended
        visit = self._find(event)
        if visit is not None and event.uid and event.uid in visit.uids:
            return ended
        row = _row(event, ingest_ms, policy.fields)
        if event.kind == "page_enter":
            if visit is not None:
                ended.append(self._end(visit, "reenter", _made_up(visit, event.event_time_ms)))
            self.visits.append(
                OpenVisit(event.page_id, event.page_instance, ingest_ms, [row], [event.uid])
            )
            return ended
        if visit is None or event.event_time_ms < visit.rows[0][2]:
            return ended
        visit.last_ingest_ms = max(visit.last_ingest_ms, ingest_ms)
        if event.kind == "page_exit":
            last_ms = max(event.event_time_ms, visit.rows[-1][2])
            ended.append(self._end(visit, "exit", (*row[:2], last_ms, *row[3:])))
        elif len(visit.rows) >= policy.page_max_events:
            ended.append(self._end(visit, "overflow", _made_up(visit, event.event_time_ms)))
        else:
            insort(visit.rows, row, key=_time_of)
            visit.uids.append(event.uid)
        return ended

    def _find(self, event: RawEvent) -> OpenVisit | None:
        for visit in reversed(self.visits):
            if visit.page_id == event.page_id and (
                visit.instance == event.page_instance
                or (not event.page_instance and event.kind != "page_enter")
            ):
                return visit
        return None

    def _time_out(self, ingest_ms: int, policy: VisitPolicy) -> list[OpenVisit]:
        if policy.page_timeout_ms is None:
            return []
        oldest_ms = ingest_ms - policy.page_timeout_ms
        due = [visit for visit in self.visits if visit.last_ingest_ms <= oldest_ms]
        return [self._end(visit, "timeout", _made_up(visit, 0)) for visit in due]

    def _end(self, visit: OpenVisit, cause: str, last: Row) -> OpenVisit:
        self.visits = [each for each in self.visits if each is not visit]
        visit.cause = cause
        visit.rows.append(last)
        return visit


def _made_up(visit: OpenVisit, time_ms: int) -> Row:
    # in place of an exit that never came
    time_ms = max(time_ms, visit.rows[-1][2])
    return ("page_exit", "page_exit", time_ms, visit.last_ingest_ms, None)


def _row(event: RawEvent, ingest_ms: int, fields: Collection[str] | None) -> Row:
    contents = event.contents
    if fields is not None:
        contents = {name: contents[name] for name in contents if name in fields}
    return (
        event.id or event.kind,
        event.kind,
        event.event_time_ms,
        ingest_ms,
        contents or None,
    )
