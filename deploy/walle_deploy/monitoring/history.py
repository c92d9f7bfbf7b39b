"""Counts of one version over time: since its first report, since some moments, of late.

A release asks for what happened since it was offered, again and again: from the first time on
that is counted by itself (a span), to the report. What happened before somebody asked is known by
slots: of a minute for a quarter of an hour, of an hour for a day and two hours.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec

from walle_deploy.monitoring.counts import VersionCounts
from walle_stream.wire.reports import TaskReport

SPANS_MAX: Final = 4
"""Spans of a version; the one that was not asked for longest goes for one more."""

SLOT_DEVICES: Final = 100_000
"""Bound of exact numbers of devices of a slot, and of what is put together of them."""

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_MINUTES: Final = 15
_HOURS: Final = 26

WINDOW_MS: Final = _MINUTES * _MINUTE_MS
"""Of ``recent``."""


class _Slots:
    """The last slots of one length."""

    def __init__(self, mark: str, length_ms: int, count: int) -> None:
        self.mark = mark
        self.length_ms = length_ms
        self.count = count
        self.counts: dict[int, VersionCounts] = {}

    def at(self, now_ms: int) -> VersionCounts:
        number = now_ms // self.length_ms
        found = self.counts.get(number)
        if found is None:
            found = self.counts[number] = VersionCounts(SLOT_DEVICES)
            for old in [each for each in self.counts if each <= number - self.count]:
                del self.counts[old]
        return found

    def load(self, parts: Mapping[str, bytes]) -> None:
        rows = [
            msgspec.msgpack.decode(part, type=tuple[int, bytes])
            for name, part in parts.items()
            if name[:1] == self.mark
        ]
        # in a ring, what lies in the place of a slot without reports is older
        newest = max((number for number, _ in rows), default=0)
        for number, part in sorted(rows):
            if number > newest - self.count:
                self.counts[number] = VersionCounts.load(part)

    def since(self, since_ms: int) -> Iterable[VersionCounts]:
        # a slot that began before may have what happened before
        first = -(-since_ms // self.length_ms)
        return (counts for number, counts in self.counts.items() if number >= first)

    def merge(self, other: "_Slots") -> None:
        newest = max((*self.counts, *other.counts), default=0)
        for number, counts in other.counts.items():
            self.counts.setdefault(number, VersionCounts(SLOT_DEVICES)).merge(counts)
        for old in [each for each in self.counts if each <= newest - self.count]:
            del self.counts[old]


RECENT_PARTS: Final = ("seen", *(f"m{number}" for number in range(_MINUTES)))
"""Parts of a dump that ``VersionHistory.load_recent`` takes."""


class VersionHistory:
    """Of one worker. One thread."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.total = VersionCounts()
        self.seen_ms = 0
        """When the last report came, epoch ms."""
        self._spans: dict[int, VersionCounts] = {}
        self._minutes = _Slots("m", _MINUTE_MS, _MINUTES)
        self._hours = _Slots("h", _HOUR_MS, _HOURS)

    def add(self, report: TaskReport, now_ms: int) -> None:
        """Count a report.

        Args:
            report: Of this version.
            now_ms: Epoch milliseconds.
        """
        self.seen_ms = max(self.seen_ms, now_ms)
        for counts in (self.total, self._minutes.at(now_ms), self._hours.at(now_ms)):
            counts.add(report)
        for since_ms, counts in self._spans.items():
            if now_ms >= since_ms:
                counts.add(report)

    def begin(self, since_ms: int) -> bool:
        """Count what happens since some moment by itself from now on.

        Args:
            since_ms: Epoch milliseconds; ≤ 0 is the total, which is counted anyway.

        Returns:
            Whether that is new.
        """
        if since_ms <= 0:
            return False
        is_new = since_ms not in self._spans
        counts = self.since(since_ms)
        self._spans.pop(since_ms, None)
        self._spans[since_ms] = counts
        while len(self._spans) > SPANS_MAX:
            del self._spans[next(iter(self._spans))]
        return is_new

    def since(self, since_ms: int) -> VersionCounts:
        """Return what happened since some moment, as exactly as it is known.

        Args:
            since_ms: Epoch milliseconds; ≤ 0 for all. Without a span of its own nothing of a slot
                that began before is included.
        """
        if since_ms <= 0:
            return self.total
        found = self._spans.get(since_ms)
        if found is None:
            found = VersionCounts()
            oldest_ms = min(self._minutes.counts, default=0) * _MINUTE_MS
            slots = self._minutes if since_ms >= oldest_ms else self._hours
            for counts in slots.since(since_ms):
                found.merge(counts)
        return found

    def recent(self, now_ms: int) -> VersionCounts:
        """Return what happened in the last ``WINDOW_MS``, by whole minutes.

        Args:
            now_ms: Epoch milliseconds.
        """
        merged = VersionCounts(SLOT_DEVICES)
        for counts in self._minutes.since(now_ms - now_ms % _MINUTE_MS - WINDOW_MS + _MINUTE_MS):
            merged.merge(counts)
        return merged

    def merge(self, other: "VersionHistory") -> None:
        """Add what another worker counted; gives what one would have that counted both's.

        Args:
            other: Stays as it is.
        """
        minutes, hours, begun = other._minutes, other._hours, other._spans  # noqa: SLF001 - own class
        moments = [*(each for each in begun if each not in self._spans), *self._spans]
        spans: dict[int, VersionCounts] = {}
        for since_ms in moments[-SPANS_MAX:]:
            spans[since_ms] = VersionCounts()
            for each in (self, other):
                spans[since_ms].merge(each.since(since_ms))
        self._spans = spans
        self.total.merge(other.total)
        self.seen_ms = max(self.seen_ms, other.seen_ms)
        self._minutes.merge(minutes)
        self._hours.merge(hours)

    def dump(self, *, is_whole: bool = False) -> dict[str, bytes]:
        """Return what ``load`` takes, as parts.

        Args:
            is_whole: Also the slots of the past, which are as they were when they were dumped
                last unless there was a ``merge``.
        """
        spans = [(since_ms, counts.dump()) for since_ms, counts in self._spans.items()]
        parts = {
            "total": self.total.dump(),
            "seen": b"%d" % self.seen_ms,
            "spans": msgspec.msgpack.encode(spans),
        }
        for slots in (self._minutes, self._hours):
            numbers = sorted(slots.counts)
            for number in numbers if is_whole else numbers[-1:]:
                name = f"{slots.mark}{number % slots.count}"
                parts[name] = msgspec.msgpack.encode((number, slots.counts[number].dump()))
        return parts

    @classmethod
    def load(cls, parts: Mapping[str, bytes]) -> Self:
        """Return a history that was dumped.

        Args:
            parts: All that were ever dumped of it, the newest of each name.
        """
        found = cls()
        found.total = VersionCounts.load(parts["total"])
        found.seen_ms = int(parts["seen"])
        spans = msgspec.msgpack.decode(parts["spans"], type=list[tuple[int, bytes]])
        found._spans = {since_ms: VersionCounts.load(part) for since_ms, part in spans}
        for slots in (found._minutes, found._hours):
            slots.load(parts)
        return found

    @classmethod
    def load_recent(cls, parts: Mapping[str, bytes]) -> Self:
        """Return a history that knows when the last report came, and what ``recent`` tells.

        Args:
            parts: Those in ``RECENT_PARTS`` that there are.
        """
        found = cls()
        found.seen_ms = int(parts.get("seen", b"0"))
        found._minutes.load(parts)
        return found
