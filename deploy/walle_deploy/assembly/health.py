"""Health of versions, from the reports that monitors have stored to the gates of releases."""

from collections.abc import Mapping
from typing import Final

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.monitor import HealthReader, begin_step
from walle_deploy.store.port import ReleaseStore

_KIND: Final = "monitor"


class StoredSnapshots:
    """A monitor's ``SnapshotStore`` within a release store; any thread, blocks."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def load(self, prefix: str) -> Mapping[str, bytes]:
        """Return the rows whose keys begin with a prefix; see ``SnapshotStore``."""
        with self._store.reading() as transaction:
            rows = transaction.snapshots(_KIND)
        return {key: value for key, value in rows.items() if key.startswith(prefix)}

    def save(self, rows: Mapping[str, bytes]) -> None:
        """Write rows, all or none; see ``SnapshotStore``."""
        with self._store.writing() as transaction:
            for key, value in rows.items():
                transaction.put_snapshot(_KIND, key, value)


class MonitoredHealth:
    """A ``HealthSource`` of what monitors count; any thread, blocks on the store.

    A version is counted from the moment on at which a release first asks for it: what its
    devices did before another release, or long ago, decides nothing.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Read from a store.

        Args:
            store: That the monitors flush to.
        """
        self._snapshots = StoredSnapshots(store)
        self._reader = HealthReader(self._snapshots)
        self._asked: dict[tuple[str, str], int] = {}

    def health(self, task: str, version: str, since_ms: int) -> VersionHealth:
        """Return what devices reported; see ``HealthSource``."""
        key = task, version
        if self._asked.get(key) != since_ms:
            begin_step(self._snapshots, task, version, str(since_ms))
            self._asked[key] = since_ms
        return self._reader.health(task, version, "step")
