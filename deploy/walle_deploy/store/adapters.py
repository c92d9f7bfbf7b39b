"""The store as other parts of the platform ask for it: tables, and rows by key."""

from typing import Final

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.store.port import ReleaseStore

_ROWS: Final = "rows"


class StoredTables:
    """Where a service has its table from. Every method blocks for a query.

    Where the database does not answer (ServiceUnreachableError), or what is stored is no table
    (IntegrityError), the last table still holds.
    """

    def __init__(self, store: ReleaseStore) -> None:
        """Watch a store."""
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
    """What alarms remember: bytes by key. Thread-safe; raises ServiceUnreachableError."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store."""
        self._store = store

    def read(self, key: str) -> bytes | None:
        """Return a row, or None where there is none; blocks."""
        with self._store.reading() as transaction:
            return transaction.snapshot(_ROWS, key)

    def save(self, key: str, row: bytes) -> None:
        """Keep a row in place of the one before; blocks."""
        with self._store.writing() as transaction:
            transaction.put_snapshot(_ROWS, key, row)
