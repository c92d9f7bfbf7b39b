"""What alarms look at: how versions did of late, over all workers of a store."""

from collections.abc import Callable, Collection

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.counts import VersionCounts
from walle_deploy.monitoring.history import SLOT_DEVICES, VersionHistory
from walle_deploy.monitoring.rows import load_recent
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.clock import wall_ms

type Version = tuple[str, str]
"""``SCENARIO/TASK``, and a version of it."""


class FleetView:
    """A ``Seen`` of ``watch``. One thread; blocks on the store."""

    def __init__(
        self,
        store: SnapshotStore,
        wanted: Callable[[], Collection[Version]],
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """Read nothing yet.

        Args:
            store: That monitors write to.
            wanted: Gives the versions to look at.
            now_ms: The clock, epoch milliseconds.
        """
        self._store = store
        self._wanted = wanted
        self._now_ms = now_ms
        self._found: dict[Version, list[VersionHistory]] = {}
        self._since_ms: dict[Version, int] = {}

    def versions(self) -> dict[Version, int]:
        """Look; return when the last report of each version came, epoch ms.

        Of a version that nobody ever reported: when it was first asked for here.

        Raises:
            StoreError: The store cannot be read.
        """
        wanted = {f"{task}@{version}": (task, version) for task, version in self._wanted()}
        found = load_recent(self._store, wanted)
        self._found = {wanted[name]: histories for name, histories in found.items() if histories}
        now_ms, before = self._now_ms(), self._since_ms
        self._since_ms = {version: before.get(version, now_ms) for version in wanted.values()}
        return self._since_ms | {
            version: max(each.seen_ms for each in histories)
            for version, histories in self._found.items()
        }

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did, as of the last look.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        merged = VersionCounts(SLOT_DEVICES)
        for each in self._found.get((task, version), ()):
            merged.merge(each.recent(self._now_ms()))
        return merged.health(task, version)
