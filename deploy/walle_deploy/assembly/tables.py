"""The release store as the release service sees it: its table, and where known devices go."""

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.service.ports import DeviceBatch
from walle_deploy.store.port import ReleaseStore


class StoredTable:
    """A ``TableSource`` over a store; blocks on it."""

    def __init__(self, store: ReleaseStore) -> None:
        """Read from a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def generation(self) -> int:
        """Return the table's generation; see ``TableSource``."""
        with self._store.reading() as transaction:
            return transaction.generation()

    def load(self) -> ReleaseTable:
        """Return the whole table; see ``TableSource``."""
        with self._store.reading() as transaction:
            return transaction.table()


class StoredDevices:
    """A ``DeviceSink`` that keeps how many devices have each version; blocks on the store."""

    def __init__(self, store: ReleaseStore) -> None:
        """Write to a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store
        self._told: dict[str, dict[str, int]] = {}

    def write(self, batch: DeviceBatch) -> None:
        """Take a batch over; see ``DeviceSink``."""
        by_task: dict[str, dict[str, int]] = {}
        for (task, version), count in batch.counts.items():
            by_task.setdefault(task, {})[version] = count
        changed = {
            task: counts for task, counts in by_task.items() if counts != self._told.get(task)
        }
        gone = self._told.keys() - by_task.keys()
        if not changed and not gone:
            return
        with self._store.writing() as transaction:
            for task, counts in changed.items():
                transaction.put_device_counts(batch.worker, task, counts)
            for task in gone:
                transaction.put_device_counts(batch.worker, task, {})
        self._told = by_task
