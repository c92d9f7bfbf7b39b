"""Mistakes that make no run fail: ids that no event has, times in another unit.

Each is a warning of one line. Certain mistakes are known before a row is read; likely ones are
known after the first thousand rows.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

from walle_stream.app.programs.programs import ReadyTask
from walle_stream.events import KINDS
from walle_stream.ports import DeclaredIds, EventBatch, Source, SourceBatch, SourceReader, Unread
from walle_stream.spec.suggestions import nearest, suggest

_log = logging.getLogger(__name__)

FIRST_ROWS: Final = 1_000
"""Number of rows that a run inspects."""

_CLOSE: Final = 0.85
_SEEN_MAX: Final = 10_000
_DIGITS: Final = str.maketrans("", "", "0123456789")
# a page that times out ends with an exit that no source declares
_MADE_HERE: Final = frozenset({"page_exit"})
# epoch milliseconds of 1970-01-02 to 1970-04-26: as seconds 1973 to 2286
_SECONDS: Final = range(10**8, 10**10)
_MICROSECONDS_MIN: Final = 10**14  # as milliseconds behind the year 5138


class LikelyMistakes:
    """Detector of likely mistakes in a definition and in its events. One thread."""

    def __init__(
        self,
        tasks: Iterable[ReadyTask],
        source: Source | None = None,
        places: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """Keep the definition; a source's ``declared`` has the ids that its events can have.

        Places are ``FILE:LINE:COLUMN`` of tasks' trigger ids and pages, and of the source's keys
        (task ``""``).
        """
        self._tasks = tuple(tasks)
        self._source = source
        self._declared: DeclaredIds = getattr(source, "declared", None) or DeclaredIds()
        self._places = places or {}
        self._ids: set[str] = set()
        self._pages: set[str] = set()
        self._units: Counter[str] = Counter()
        self._examples: dict[str, int] = {}

    def look(self, events: EventBatch, count: int = FIRST_ROWS) -> None:
        """Inspect the first events of a batch, ``count`` at most."""
        for id_, page, time_ms in events.heads(max(count, 0)):
            if len(self._ids) < _SEEN_MAX:
                self._ids.add(id_)
            if len(self._pages) < _SEEN_MAX:
                self._pages.add(page)
            unit = _unit_of(time_ms)
            self._units[unit] += 1
            self._examples.setdefault(unit, time_ms)

    def look_at_file(self) -> list[str]:
        """Read the first rows of a source file; return what is wrong with them, a line each.

        Raises:
            SourceError: The definition does not fit the file, so a run would be refused as well.
        """
        path = getattr(self._source, "path", None)
        if self._source is None or path is None or not path.is_file():
            return []
        rows, letters = 0, []
        with closing(self._source.open({}, 1, FIRST_ROWS, FIRST_ROWS)) as reader:
            while not reader.is_done:
                for batch in reader.read():
                    self.look(batch.events)
                    rows += batch.counts.source_rows
                    letters += batch.dead_letters
        if not letters:
            return []
        first = f"{letters[0].origin}: {letters[0].reason}"
        return [f"{len(letters):,} of the first {rows:,} rows are refused, first {first}"]

    def warnings(self) -> list[str]:
        """Return the likely mistakes, a line each, with their place if known."""
        problems = []
        for task in self._tasks:
            for id_ in dict.fromkeys(id_ for trigger in task.triggers for id_ in trigger):
                problems += self._trigger(task.name, id_)
            for page in task.pages or ():
                problems += self._page(task.name, page)
        return [*problems, *self._times()]

    def _trigger(self, task: str, id_: str) -> list[str]:
        declared = self._declared
        known = declared.ids | declared.pages | _MADE_HERE
        is_open = declared.has_other_ids or declared.has_other_pages
        if declared.has_other_ids:
            known |= frozenset(KINDS)
        problem = _problem(id_, known, self._ids | self._pages, is_open=is_open)
        if not problem:
            return []
        return [self._said(task, id_, f"no event or page has the trigger id {id_!r}{problem}")]

    def _page(self, task: str, page: str) -> list[str]:
        declared = self._declared
        is_open = declared.has_other_pages
        problem = _problem(page, declared.pages, self._pages, is_open=is_open)
        return [self._said(task, page, f"there is no page {page!r}{problem}")] if problem else []

    def _times(self) -> list[str]:
        total = self._units.total()
        for unit, factor in (("seconds", "times 1000"), ("microseconds", "divided by 1000")):
            if 2 * self._units[unit] > total:
                text = (
                    f"times must be milliseconds, but {self._examples[unit]} looks like {unit}: "
                    f"give it {factor}"
                )
                return [self._said("", "time", text)]
        return []

    def _said(self, task: str, name: str, text: str) -> str:
        place = self._places.get((task, name), "")
        owner = f"task {task!r}: " if task else "spec.source: "
        return f"{place}: {owner}{text}" if place else f"{owner}{text}"


class FirstRows:
    """A wrapper of a reader that inspects the first rows."""

    def __init__(
        self,
        reader: SourceReader,
        mistakes: LikelyMistakes,
        warn: Callable[[str], object] = _log.warning,
    ) -> None:
        """Wrap a reader."""
        self._reader = reader
        self._mistakes = mistakes
        self._warn = warn
        self._left = FIRST_ROWS

    def read(self) -> Sequence[SourceBatch]:
        """Read the next batches; see ``SourceReader.read``."""
        return self._looked_at(self._reader.read())

    def drain(self) -> Sequence[SourceBatch]:
        """Return the batches read so far; see ``SourceReader.drain``."""
        return self._looked_at(self._reader.drain())

    def _looked_at(self, batches: Sequence[SourceBatch]) -> Sequence[SourceBatch]:
        if self._left > 0:
            for batch in batches:
                self._mistakes.look(batch.events, max(self._left, 0))
                self._left -= max(batch.counts.source_rows, len(batch.events))
            if self._left <= 0 or self._reader.is_done:
                self._left = 0
                for line in self._mistakes.warnings():
                    self._warn(line)
        return batches

    @property
    def batch_events(self) -> int:
        """Maximum number of events in a batch."""
        return self._reader.batch_events

    @batch_events.setter
    def batch_events(self, count: int) -> None:
        self._reader.batch_events = count

    @property
    def keeps_raw(self) -> bool:
        """Whether batches carry their raw rows."""
        return self._reader.keeps_raw

    @keeps_raw.setter
    def keeps_raw(self, keeps: bool) -> None:
        self._reader.keeps_raw = keeps

    @property
    def is_urgent(self) -> bool:
        """Whether a read should return at once."""
        return self._reader.is_urgent

    @is_urgent.setter
    def is_urgent(self, is_so: bool) -> None:
        self._reader.is_urgent = is_so

    @property
    def is_done(self) -> bool:
        """Whether the reader reached its end or limit and has returned everything."""
        return self._reader.is_done

    @property
    def progress(self) -> float:
        """Share of the source read so far."""
        return self._reader.progress

    @property
    def unread(self) -> Unread:
        """Input that is left to read."""
        return self._reader.unread

    def close(self) -> None:
        """Close the reader; may be called twice."""
        self._reader.close()


def _problem(name: str, known: frozenset[str], seen: set[str], *, is_open: bool) -> str:
    # the end of a warning about a name, or nothing if the name may be right
    if name in known or name in seen:
        return ""
    if not is_open:
        return suggest(name, known)
    likely = known | seen
    # ``exit`` for ``page_exit``
    whole = f"page_{name}"
    close = whole if whole in likely else nearest(name, likely, _CLOSE)
    if close is None or close.translate(_DIGITS) == name.translate(_DIGITS):
        return ""
    return f" so far, did you mean {close!r}?"


def _unit_of(time_ms: int) -> str:
    if time_ms in _SECONDS:
        return "seconds"
    return "microseconds" if time_ms >= _MICROSECONDS_MIN else "milliseconds"
