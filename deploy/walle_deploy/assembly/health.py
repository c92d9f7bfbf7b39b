"""Health of versions on its way to the gates, kept in the store for whoever looks at a release."""

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.reader import HealthReader
from walle_deploy.release.stored_health import put_health
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.port import ReleaseStore


class RecordedHealth:
    """A ``HealthSource`` of what monitors count. One thread; blocks on the store."""

    def __init__(self, store: ReleaseStore) -> None:
        """Read from a store.

        Args:
            store: That monitors write to, and releases are in.
        """
        self._store = store
        self._reader = HealthReader(StoredRows(store))
        self._put: dict[tuple[str, str], VersionHealth] = {}

    def health(self, task: str, version: str, since_ms: int) -> VersionHealth:
        """Return what devices reported; see ``HealthSource``."""
        found = self._reader.health(task, version, since_ms)
        if self._put.get((task, version)) != found:
            with self._store.writing() as transaction:
                put_health(transaction, found)
            self._put[task, version] = found
        return found
