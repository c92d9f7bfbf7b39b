"""Opens the store that an address names, and watches it for the release service."""

from pathlib import Path
from typing import Final

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ServiceUnreachableError

_POSTGRES: Final = ("postgresql://", "postgres://")


def open_store(address: str, *, make: bool = True) -> ReleaseStore:
    """Open a store.

    Args:
        address: Path of a SQLite file, or ``postgresql://...``.
        make: Make the file where it is missing.

    Raises:
        ServiceUnreachableError: It cannot be reached, or psycopg is not installed.
        IntegrityError: It is no release store, or one of a later version.
    """
    if not address.startswith(_POSTGRES):
        if not (make or Path(address).exists()):
            raise ServiceUnreachableError(
                f"there is no release store {address}: it is made when the first version is "
                "published"
            )
        return SqliteStore(Path(address))
    try:
        from walle_deploy.store.postgres import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ServiceUnreachableError(
            "psycopg is not installed: pip install 'walle-stream[deploy]'"
        ) from error
    return PostgresStore(address)


class StoredTables:
    """A source of tables for the check of devices: reads one anew only when it changed."""

    def __init__(self, store: ReleaseStore) -> None:
        """Watch a store.

        Args:
            store: Stays the caller's; used from whatever thread calls ``current``.
        """
        self._store = store
        self._table: ReleaseTable | None = None

    def current(self) -> ReleaseTable:
        """Return the table as it is now; blocks for one query, as a rule of one number.

        Raises:
            ServiceUnreachableError: The database does not answer; the last table still holds.
        """
        with self._store.reading() as transaction:
            table = self._table
            if table is None or transaction.generation() != table.generation:
                table = self._table = transaction.table()
        return table
