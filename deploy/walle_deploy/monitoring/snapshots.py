"""Where a monitor keeps its counts: rows by key, written in batches.

The port is small on purpose, so that any store of the platform has it. SQLite's is the
embedded default. Their keys are in ``rows``.
"""

import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from walle_stream.errors import StoreError

_SCHEMA = "CREATE TABLE IF NOT EXISTS snapshots (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
_PUT = "INSERT INTO snapshots VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_AFTER = "\U0010ffff"
_BUSY_S = 10.0


class SnapshotStore(Protocol):
    """Keeps rows. Thread-safe; several processes may have it open."""

    def load(self, prefix: str) -> Mapping[str, bytes]:
        """Return the rows whose keys begin with a prefix; blocks.

        Args:
            prefix: Such as ``count/``.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def save(self, rows: Mapping[str, bytes]) -> None:
        """Write rows, all or none, durable when this returns; blocks.

        Args:
            rows: By key; one that is there is replaced.

        Raises:
            StoreError: None was written.
        """
        ...


class SqliteSnapshots:
    """Rows in a file of SQLite (WAL). Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it if it is not there; blocks.

        Args:
            path: Where it is.

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

    def load(self, prefix: str) -> Mapping[str, bytes]:
        """Return rows; see ``SnapshotStore.load``."""
        try:
            with self._lock:
                found = self._database.execute(
                    "SELECT key, value FROM snapshots WHERE key >= ? AND key < ?",
                    (prefix, prefix + _AFTER),
                )
                return dict(found.fetchall())
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def save(self, rows: Mapping[str, bytes]) -> None:
        """Write rows; see ``SnapshotStore.save``."""
        database = self._database
        with self._lock:
            try:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(_PUT, rows.items())
                database.execute("COMMIT")
            except sqlite3.Error as error:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise self._failed(error) from error

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._database.close()

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"the monitor's counts in {self._path} cannot be used: {error}")
