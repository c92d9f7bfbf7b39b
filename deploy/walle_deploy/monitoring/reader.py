"""Reads the health of versions and of a release's groups, as counted by all workers."""

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
from walle_deploy.monitoring.counts import UNIT, WindowCounts, merged_counts
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.rows import CountedWindow, Scope
from walle_stream.errors import DeployError, ServiceUnreachableError

_KEPT_MAX: Final = 256
type _Kept = dict[tuple[int, int], tuple[int, WindowCounts]]


class HealthReader:
    """A ``HealthSource``. One thread; blocks on the store; raises ServiceUnreachableError.

    It remembers the sums of closed windows, so another read costs only the new windows.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Start without any reads."""
        self._store = store
        self._kept: _Kept = {}
        """By scope and first window: the last window of the sum, and the sum."""

    def health(self, task: str, version: str) -> VersionHealth:
        """Return the health of a version on all devices that count, as of the last batch."""
        with self._looking(f"{task}@{version}") as look:
            return look.health(Scope(task, version), task, version)

    def release_health(self, query: ReleaseHealthQuery) -> ReleaseHealth:
        """Return the health of both groups of a release."""
        with self._looking(f"release {query.release_id}") as look:
            return ReleaseHealth(
                new=look.group(query, "new", query.version),
                control=look.group(query, "control", query.before),
            )

    @contextmanager
    def _looking(self, what: str) -> Iterator["_Look"]:
        try:
            with self._store.reading() as transaction:
                yield _Look(transaction, self._kept)
        except DeployError as error:
            raise ServiceUnreachableError(
                f"the health of {what} cannot be read now: {error.message}"
            ) from error
        while len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]


class _Look:
    def __init__(self, transaction: ReadTransaction, kept: _Kept) -> None:
        self._transaction = transaction
        self._kept = kept
        # a counting worker may have read the clock before the last window ended
        self._closed = transaction.window_at(transaction.now_ms()) - 2

    def health(
        self, scope: Scope, task: str, version: str, step_ms: int | None = None
    ) -> VersionHealth:
        stored = self._transaction.scopes([scope]).get(scope)
        if stored is None or step_ms not in {None, stored.step_ms}:  # no report of this step yet
            return VersionHealth(task=task, version=version)
        first = 0 if step_ms is None else stored.step_from
        key = stored.id, first
        until, counts = self._kept.pop(key, (-1, WindowCounts()))
        if until < stored.minutes_from - 1:
            # a window not yet read may be part of an hour now
            until, counts = -1, WindowCounts()
        windows = self._transaction.windows(stored.id, stored.row_of(first), until)
        # window numbers never fall, so all windows before the last one are final
        closed = [window for window in windows[:-1] if window.number > until]
        counts.merge(merged_counts(window.data for window in closed))
        self._kept[key] = closed[-1].number if closed else until, counts
        total = merged_counts(window.data for window in windows[-1:])
        total.merge(counts)
        return health_of(task, version, windows, total)

    def group(self, query: ReleaseHealthQuery, group: str, version: str) -> GroupHealth:
        every = Scope(query.task, version, query.release_id)
        own = group_scope(query.task, query.release_id, group)
        stored = self._transaction.scopes([own]).get(own)
        windows: Sequence[CountedWindow] = ()
        if stored is not None:
            # a window inside an hour no longer tells its minutes
            first = max(query.after + 1, stored.minutes_from)
            windows = self._transaction.windows(stored.id, first, end=self._closed + 1)
        return GroupHealth(
            release=self.health(every, query.task, version),
            step=self.health(every if query.is_beta else own, query.task, version, query.step_ms),
            windows=tuple(map(_group_window, windows)),
        )


def health_of(
    task: str, version: str, windows: Sequence[CountedWindow], counts: WindowCounts
) -> VersionHealth:
    """Return the sum of all windows since some moment. Each device is in exactly one of them."""
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
        last_ms=windows[-1].last_ms if windows else 0,
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
