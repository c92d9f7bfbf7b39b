"""What alarms look at: how versions did of late, whichever worker counted them."""

from collections.abc import Callable, Collection
from typing import Final

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.counting import WINDOW_MS
from walle_deploy.monitoring.counts import merged_counts
from walle_deploy.monitoring.reader import health_of
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.rows import END, CountedWindow, Scope

type Version = tuple[str, str]
"""``SCENARIO/TASK``, and a version of it."""

RECENT_WINDOWS: Final = 15
"""Minutes that ``recent`` is about, with the one at hand."""


class FleetView:
    """What ``watch`` looks at. One thread; blocks on the store."""

    def __init__(self, store: ReleaseStore, wanted: Callable[[], Collection[Version]]) -> None:
        """Read nothing yet."""
        self._store = store
        self._wanted = wanted
        self._windows: dict[Version, list[CountedWindow]] = {}
        self._since_ms: dict[Version, int] = {}

    def versions(self) -> dict[Version, int]:
        """Look; return when the last report of each version came, epoch ms.

        Of a version that nobody ever reported: when it was first asked for here.

        Raises:
            ServiceUnreachableError: The store cannot be read.
        """
        wanted = self._wanted()
        with self._store.reading() as transaction:
            now_ms, before = transaction.now_ms(), self._since_ms
            end = now_ms // WINDOW_MS + 1  # none of a clock that was ahead
            scopes = transaction.scopes([Scope(*version) for version in wanted])
            self._since_ms = {version: before.get(version, now_ms) for version in wanted}
            self._windows.clear()
            for scope, stored in scopes.items():
                windows = transaction.windows(stored.id, end - RECENT_WINDOWS, end=end)
                self._windows[scope[:2]] = list(windows)
                # of one that is silent when it was not
                last = windows or transaction.windows(stored.id, 0, END, end)
                if last:
                    self._since_ms[scope[:2]] = max(window.last_ms for window in last)
        return dict(self._since_ms)

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did in the last ``RECENT_WINDOWS``, as of the last look."""
        windows = self._windows.get((task, version), [])
        return health_of(task, version, windows, merged_counts(window.data for window in windows))
