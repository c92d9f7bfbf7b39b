"""The store as other parts of the platform ask for it: tables, known devices, rows by key.

They have the shape of the ports of the release service and of monitoring, which do not know
the store.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from walle_deploy.model.releases import ReleaseTable, VersionFiles
from walle_deploy.store.port import ReadTransaction, ReleaseStore
from walle_stream.errors import ConflictError

_ROWS: Final = "rows"
_OPEN: Final = "open"


class CountedDevices(Protocol):
    """What a worker of the release service tells of the devices that it knows."""

    @property
    def worker(self) -> str:
        """Its name; no other has it."""

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        """Devices by task and version, of all that it knows."""

    @property
    def is_open(self) -> bool:
        """Whether it asks nobody who he is."""


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
            if batch.is_open:
                transaction.put_snapshot(_OPEN, _OPEN, b"%d" % transaction.now_ms())


def open_until_ms(transaction: ReadTransaction) -> int:
    """Return when a service last asked nobody who he is, a few seconds old; 0 for never.

    What was reported, or asked for, before may be from anybody.

    Args:
        transaction: To look in.
    """
    return int(transaction.snapshots(_OPEN).get(_OPEN, b"0"))


class StoredRows:
    """A ``SnapshotStore``: bytes by key. Thread-safe."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store."""
        self._store = store

    def load(self, *prefixes: str) -> Mapping[str, bytes]:
        """Return rows; see ``SnapshotStore.load``.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.reading() as transaction:
            return {
                key: data
                for prefix in prefixes
                for key, data in transaction.snapshots(_ROWS, prefix).items()
            }

    def read(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return the rows of these keys that are there; blocks.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.reading() as transaction:
            return transaction.named_snapshots(_ROWS, keys)

    def save(
        self,
        rows: Mapping[str, bytes | None],
        expected: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Write rows; see ``SnapshotStore.save``.

        Raises:
            ConflictError: Something else is there; nothing was written.
            ServiceUnreachableError: The database does not answer.
        """
        with self._store.writing() as transaction:
            if expected:
                found = transaction.named_snapshots(_ROWS, expected)
                for key, data in expected.items():
                    if found.get(key) != data:
                        raise ConflictError(f"row {key!r} was changed by somebody else meanwhile")
            transaction.delete_snapshots(_ROWS, [key for key in rows if rows[key] is None])
            for key, data in rows.items():
                if data is not None:
                    transaction.put_snapshot(_ROWS, key, data)
