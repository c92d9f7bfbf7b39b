"""Adapters of the store for other parts: the release table, and rows by key."""

from typing import Final

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.store.port import ReleaseStore

_ROWS: Final = "rows"


class StoredTables:
    """The source of a service's table. Every method blocks for a query.

    If the database does not answer (ServiceUnreachableError), or the stored table is malformed
    (IntegrityError), the last table stays valid.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Read from a store, which stays the caller's."""
        self._store = store
        self._last = ReleaseTable(0)

    def generation(self) -> int:
        """Return the table's generation."""
        with self._store.reading() as transaction:
            return transaction.generation()

    def load(self) -> ReleaseTable:
        """Return the whole table."""
        with self._store.reading() as transaction:
            self._last = transaction.table(self._last.files)
        return self._last


class StoredRows:
    """The alarms' memory: bytes by key. Thread-safe; raises ServiceUnreachableError."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store."""
        self._store = store

    def read(self, key: str) -> bytes | None:
        """Return a row, or None if there is none; blocks."""
        with self._store.reading() as transaction:
            return transaction.snapshot(_ROWS, key)

    def save(self, key: str, row: bytes) -> None:
        """Replace a row; blocks."""
        with self._store.writing() as transaction:
            transaction.put_snapshot(_ROWS, key, row)
