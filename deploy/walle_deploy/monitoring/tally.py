"""What is counted of all versions, in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.history import VersionHistory
from walle_deploy.monitoring.rows import mark_key
from walle_stream.errors import EnvelopeError
from walle_stream.ports import ReportFrame
from walle_stream.wire.reports import TaskReport, decode_reports

VERSIONS_MAX: Final = 10_000
"""Versions of tasks that are counted; reports of further ones are refused."""


class MonitorCounts(msgspec.Struct):
    """What a monitor has done, for metrics."""

    frames: int = 0
    """That were counted."""
    reports: int = 0
    """In these."""
    frames_again: int = 0
    """That were counted before."""
    frames_refused: int = 0
    """Malformed."""
    reports_refused: int = 0
    """Of tasks or versions that there are not, or too many."""

    def add(self, other: "MonitorCounts") -> None:
        """Add what was done beside.

        Args:
            other: Stays as it is.
        """
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Tally:
    """Counts of one worker. One thread at a time."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        is_known: Callable[[str, str], bool] | None,
    ) -> None:
        """Start with nothing; see ``Monitor`` for the arguments."""
        self.versions: dict[str, VersionHistory] = {}
        """By ``TASK@VERSION``."""
        self.changed: set[str] = set()
        """Names of versions, since somebody emptied it."""
        self._now_ms = now_ms
        self._is_known = is_known
        self._asks: Mapping[str, Sequence[int]] = {}  # of the store
        self._early: dict[str, set[int]] = {}  # of versions that nobody had reported

    def replace(self, histories: Mapping[str, VersionHistory | None]) -> None:
        """Put stored histories in place of those here.

        Args:
            histories: See ``WorkerRows.load``.
        """
        if "" in histories:
            self.versions.clear()
            self.changed.clear()
        self.changed.difference_update(histories)
        for name, history in histories.items():
            if history is not None:
                self.versions[name] = history
            else:
                self.versions.pop(name, None)
        self._asks = {}  # whether their spans are among them is not known

    def merge(self, histories: Mapping[str, VersionHistory]) -> None:
        """Add another worker's.

        Args:
            histories: By ``TASK@VERSION``; they are not the caller's any more.
        """
        for name, history in histories.items():
            if name in self.versions:
                self.versions[name].merge(history)
            else:
                self.versions[name] = history

    def begin(self, asks: Mapping[str, Sequence[int]]) -> None:
        """Count what happens since the moments that somebody asks for.

        Args:
            asks: All of them, by ``TASK@VERSION``.
        """
        new = {name: asks[name] for name in asks if asks[name] != self._asks.get(name)}
        self._asks = asks
        for name, moments in new.items():
            found = self.versions.get(name)
            if found is not None and sum(found.begin(each) for each in moments):
                self.changed.add(name)

    def take(
        self, frames: Iterable[ReportFrame], marks: dict[str, int], done: MonitorCounts
    ) -> int:
        """Count frames.

        Args:
            frames: Those of one partition in order; they may come again.
            marks: By ``rows.mark_key`` the last frame that was counted; is brought up to date.
            done: Is added to.

        Returns:
            How many were new.
        """
        return sum(self._take(frame, marks, done) for frame in frames)

    def health(self, task: str, version: str, since_ms: int) -> VersionHealth:
        """Return how a version does; see ``Monitor.health``."""
        name = f"{task}@{version}"
        found = self.versions.get(name)
        if found is None:
            if len(self._early) < VERSIONS_MAX:
                self._early.setdefault(name, set()).add(since_ms)
            return VersionHistory().total.health(task, version)
        if found.begin(since_ms):
            self.changed.add(name)
        return found.since(since_ms).health(task, version)

    def _take(self, frame: ReportFrame, marks: dict[str, int], done: MonitorCounts) -> bool:
        key = mark_key(frame)
        if frame.number <= marks.get(key, -1):
            done.frames_again += 1
            return False
        marks[key] = frame.number
        try:
            reports = decode_reports(frame.body)
        except EnvelopeError:
            done.frames_refused += 1
            return False
        done.frames += 1
        for report in reports:
            self._count(report, done)
        return True

    def _count(self, report: TaskReport, done: MonitorCounts) -> None:
        name = f"{report.task}@{report.version}"
        found = self.versions.get(name)
        if found is None:
            if not self._is_admitted(report, name):
                done.reports_refused += 1
                return
            self.changed.add(name)
            found = self.versions[name] = VersionHistory()
            for moment in sorted({*self._asks.get(name, ()), *self._early.get(name, ())}):
                found.begin(moment)
        self.changed.add(name)
        found.add(report, self._now_ms())
        done.reports += 1

    def _is_admitted(self, report: TaskReport, name: str) -> bool:
        if len(self.versions) >= VERSIONS_MAX:
            return False
        # a task with an @ could not be told apart from another one, and no store keeps NUL
        if "@" in report.task or not name.isprintable():
            return False
        return self._is_known is None or self._is_known(report.task, report.version)
