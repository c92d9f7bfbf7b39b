"""Reads how versions, and the groups of releases, do: of all that any worker counted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from walle_deploy.model.health import (
    GroupHealth,
    GroupWindow,
    ReleaseHealth,
    ReleaseHealthQuery,
    VersionHealth,
)
from walle_deploy.monitoring.attribution import group_scope
from walle_deploy.monitoring.counting import WINDOW_MS
from walle_deploy.monitoring.counts import UNIT, WindowCounts, merged_counts
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import END, CountedWindow, Scope, StoredScope
from walle_stream.errors import DeployError, ServiceUnreachableError

CLOSED_MS: Final = WINDOW_MS
"""After its end nothing is counted in a window any more: who counts has read the clock long ago."""

_KEPT_MAX: Final = 256
type _Kept = dict[tuple[int, int], tuple[int, WindowCounts]]


class HealthReader:
    """A ``HealthSource``. One thread; blocks on the store; raises ServiceUnreachableError.

    What closed windows add up to is remembered, so that asking again costs as much as is new.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Read nothing yet."""
        self._store = store
        self._kept: _Kept = {}
        """By scope and first window: up to which one, and what was counted until then."""

    def health(self, task: str, version: str, since_ms: int = 0) -> VersionHealth:
        """Return how a version does on all devices that count, as of the last batch.

        Only what happened since the beginning of the minute of ``since_ms`` counts (of its hour,
        more than 26 hours ago; of all time, more than 30 days ago); epoch milliseconds, 0 for all.
        """
        with self._looking(f"{task}@{version}") as look:
            return look.health(Scope(task, version), since_ms // WINDOW_MS, task, version)

    def release_health(self, query: ReleaseHealthQuery) -> ReleaseHealth:
        """Return how both groups of a release do."""
        with self._looking(f"release {query.release_id}") as look:
            return ReleaseHealth(
                new=look.group(query, "new", query.version),
                control=look.group(query, "control", query.before),
                closed=look.closed,
                ahead=tuple(sorted(look.ahead)),
            )

    @contextmanager
    def _looking(self, what: str) -> Iterator["_Look"]:
        try:
            with self._store.reading() as transaction:
                yield _Look(transaction, self._kept)
        except DeployError as error:
            raise ServiceUnreachableError(
                f"how {what} does is not known now: {error.message}"
            ) from error
        while len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]


class _Look:
    def __init__(self, transaction: ReadTransaction, kept: _Kept) -> None:
        self._transaction = transaction
        self._kept = kept
        self.ahead: set[int] = set()
        self._now = transaction.now_ms() // WINDOW_MS
        self.closed = (transaction.now_ms() - CLOSED_MS) // WINDOW_MS - 1

    def health(self, scope: Scope, first: int, task: str, version: str) -> VersionHealth:
        stored = self._transaction.scopes([scope]).get(scope)
        if stored is None:
            return VersionHealth(task=task, version=version)
        key = stored.id, first
        until, counts = self._kept.pop(key, (-1, WindowCounts()))
        if not stored.minutes_from - 1 <= until <= self.closed:
            # what was not looked at may be in an hour now, or the clock was set back
            until, counts = -1, WindowCounts()
        # a clock that is set back leaves windows of times to come: they are no part of a span
        end = self._now + 1 if first else END
        windows = self._transaction.windows(stored.id, stored.row_of(first), until, end)
        closed = [window.data for window in windows if until < window.number <= self.closed]
        counts.merge(merged_counts(closed))
        self._kept[key] = max(until, self.closed), counts
        total = merged_counts(
            window.data for window in windows if window.number > max(until, self.closed)
        )
        total.merge(counts)
        return health_of(task, version, windows, total)

    def group(self, query: ReleaseHealthQuery, group: str, version: str) -> GroupHealth:
        every = Scope(query.task, version, query.release_id)
        own = group_scope(query.task, query.release_id, group)
        stored = self._transaction.scopes([own]).get(own)
        return GroupHealth(
            release=self.health(every, 0, query.task, version),
            step=self.health(
                every if query.is_beta else own, query.step_ms // WINDOW_MS, query.task, version
            ),
            windows=() if stored is None else self._windows(stored, query.after),
        )

    def _windows(self, scope: StoredScope, after: int) -> tuple[GroupWindow, ...]:
        # one that has become part of an hour tells nothing of minutes any more
        first = max(min(after, self.closed) + 1, scope.minutes_from)
        windows = self._transaction.windows(scope.id, first)
        self.ahead.update(window.number for window in windows if window.number > self.closed)
        return tuple(_group_window(window) for window in windows if window.number <= self.closed)


def health_of(
    task: str, version: str, windows: Sequence[CountedWindow], counts: WindowCounts
) -> VersionHealth:
    """Return what windows say, of all from some moment on: each device is in one of them."""
    return VersionHealth(
        task=task,
        version=version,
        devices=sum(window.seen for window in windows),
        failing_devices=sum(window.failed for window in windows),
        crashing_devices=sum(window.crashed for window in windows),
        runs=counts.runs,
        failures=counts.failures,
        failure_classes=counts.classes,
        device_minutes=counts.device_minutes,
        last_ms=max((window.last_ms for window in windows), default=0),
        latency_us={bucket: count / UNIT for bucket, count in counts.latency_us.items()},
        output_bytes={bucket: count / UNIT for bucket, count in counts.output_bytes.items()},
    )


def _group_window(window: CountedWindow) -> GroupWindow:
    counts = merged_counts([window.data])
    return GroupWindow(
        window.number,
        tuple(counts.failures_at_risk),
        tuple(counts.failures_reached),
        tuple(counts.crashes_at_risk),
        tuple(counts.crashes_reached),
    )
