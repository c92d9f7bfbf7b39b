"""Where a monitor keeps its counts: rows by key, written in batches.

The port is small on purpose, so that any store of the platform has it. SQLite's is the
embedded default. Their keys are in ``rows``.
"""

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from walle_stream.errors import ConflictError, StoreError

_SCHEMA = "CREATE TABLE IF NOT EXISTS snapshots (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
_PUT = "INSERT INTO snapshots VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_AFTER = "\U0010ffff"
_BUSY_S = 10.0


class SnapshotStore(Protocol):
    """Keeps rows. Thread-safe; several processes may have it open."""

    def load(self, *prefixes: str) -> Mapping[str, bytes]:
        """Return the rows whose keys begin with one of some prefixes; blocks.

        Args:
            prefixes: Such as ``count/``; all rows are of one state.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def read(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return the rows of these keys that are there, of one state; blocks.

        Args:
            keys: Any number.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def save(
        self,
        rows: Mapping[str, bytes | None],
        expected: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Write rows, all or none, durable when this returns; blocks.

        Args:
            rows: By key; one that is there is replaced, or deleted by None.
            expected: What must still be there, for whoever writes what he made of what he read;
                None for no row.

        Raises:
            ConflictError: Something else is there; nothing was written.
            StoreError: It cannot be written; where the database broke off, it may have been.
        """
        ...


class SqliteSnapshots:
    """Rows in a file of SQLite (WAL). Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it if it is not there; blocks.

        Raises:
            StoreError: It cannot be opened, or is none of SQLite.
        """
        self._path = path
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(
                path, timeout=_BUSY_S, check_same_thread=False, autocommit=True
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute(_SCHEMA)
        except sqlite3.Error as error:
            self._database.close()
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        """Return it; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def load(self, *prefixes: str) -> Mapping[str, bytes]:
        """Return rows; see ``SnapshotStore.load``."""
        with self._transaction("BEGIN") as database:
            found: dict[str, bytes] = {}
            for prefix in prefixes:
                rows = database.execute(
                    "SELECT key, value FROM snapshots WHERE key >= ? AND key < ?",
                    (prefix, prefix + _AFTER),
                )
                found.update(rows)
            return found

    def read(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return rows; see ``SnapshotStore.read``."""
        with self._transaction("BEGIN") as database:
            return _named(database, keys)

    def save(
        self,
        rows: Mapping[str, bytes | None],
        expected: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Write rows; see ``SnapshotStore.save``.

        Raises:
            ConflictError: Something else than expected is there; nothing was written.
        """
        with self._transaction("BEGIN IMMEDIATE") as database:
            found = _named(database, expected or ())
            for key, value in (expected or {}).items():
                if found.get(key) != value:
                    raise ConflictError(f"row {key!r} was changed by somebody else meanwhile")
            gone = [(key,) for key, value in rows.items() if value is None]
            database.executemany("DELETE FROM snapshots WHERE key = ?", gone)
            database.executemany(_PUT, [row for row in rows.items() if row[1] is not None])

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._database.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        database = self._database
        with self._lock:
            try:
                database.execute(begin)
                yield database
                database.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    if database.in_transaction:
                        database.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._failed(error) from error
                raise

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"the monitor's counts in {self._path} cannot be used: {error}")


def _named(database: sqlite3.Connection, keys: Iterable[str]) -> dict[str, bytes]:
    get = "SELECT key, value FROM snapshots WHERE key = ?"
    return dict(row for key in keys for row in database.execute(get, (key,)))
