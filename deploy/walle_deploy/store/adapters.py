"""The store as other parts of the platform ask for it: tables, known devices, rows by key.

They have the shape of the ports of the release service and of monitoring, which do not know
the store.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from walle_deploy.model.releases import ReleaseTable, VersionFiles
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
        """Watch a store."""
        self._store = store
        self._files: Mapping[str, VersionFiles] = {}

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
            table = transaction.table(self._files)
        self._files = table.files
        return table


class StoredDevices:
    """A ``DeviceSink``: keeps how many devices have which version."""

    def __init__(self, store: ReleaseStore) -> None:
        """Write into a store."""
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
    """What alarms remember: bytes by key. Thread-safe."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store."""
        self._store = store

    def read(self, key: str) -> bytes | None:
        """Return a row, or None where there is none; blocks.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.reading() as transaction:
            return transaction.named_snapshots(_ROWS, [key]).get(key)

    def save(self, key: str, row: bytes) -> None:
        """Keep a row in place of the one before; blocks.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.writing() as transaction:
            transaction.put_snapshot(_ROWS, key, row)
