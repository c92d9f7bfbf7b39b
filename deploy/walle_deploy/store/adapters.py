"""The store as other parts of the platform ask for it: tables, known devices, rows by key.

They have the shape of the ports of the release service and of monitoring, which do not know
the store.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.store.port import ReleaseStore

_ROWS: Final = "rows"


class CountedDevices(Protocol):
    """What a worker of the release service tells of the devices that it knows."""

    @property
    def worker(self) -> str:
        """Its name; no other has it."""

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Devices by task and version, of all that it knows."""


class StoredTables:
    """A ``TableSource``. Every method blocks for a query."""

    def __init__(self, store: ReleaseStore) -> None:
        """Watch a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def generation(self) -> int:
        """Return the table's generation.

        Raises:
            ServiceUnreachableError: The database does not answer; the last table still holds.
        """
        with self._store.reading() as transaction:
            return transaction.generation()

    def load(self) -> ReleaseTable:
        """Return the whole table.

        Raises:
            ServiceUnreachableError: The database does not answer; the last table still holds.
            IntegrityError: What is stored is no table.
        """
        with self._store.reading() as transaction:
            return transaction.table()


class StoredDevices:
    """A ``DeviceSink``: keeps how many devices have which version."""

    def __init__(self, store: ReleaseStore) -> None:
        """Write into a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def write(self, batch: CountedDevices) -> None:
        """Take the counts over; blocks.

        Args:
            batch: Replaces what its worker told before.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.writing() as transaction:
            transaction.put_device_counts(batch.worker, batch.counts)


class StoredRows:
    """A ``SnapshotStore``: bytes by key. Thread-safe."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def load(self, prefix: str) -> Mapping[str, bytes]:
        """Return the rows whose keys begin with a prefix; blocks.

        Args:
            prefix: Such as ``count/``.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.reading() as transaction:
            return transaction.snapshots(_ROWS, prefix)

    def save(self, rows: Mapping[str, bytes]) -> None:
        """Write rows, all or none, durable when this returns; blocks.

        Args:
            rows: By key; one that is there is replaced.

        Raises:
            ServiceUnreachableError: None was written.
        """
        with self._store.writing() as transaction:
            for key, data in rows.items():
                transaction.put_snapshot(_ROWS, key, data)
