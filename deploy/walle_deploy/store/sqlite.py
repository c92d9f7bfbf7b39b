"""The embedded store: one SQLite file in WAL mode, for any number of processes of a machine."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

from walle_deploy.store.port import Kind, ReleaseStore
from walle_deploy.store.schema import Dialect, Execute, altered, prepare
from walle_stream.errors import DeployError, IntegrityError, ServiceUnreachableError, StoreFullError

_DIALECT: Final = Dialect(
    # not every SQLite has unixepoch('subsec')
    now="CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)",
    blob="BLOB",
    has_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    keyed=" WITHOUT ROWID",
    elements="json_each(?)",
    element="json_extract(value, '$[{index}]')",
)
_PRIMARY: Final = 0xFF
_FULL_BYTES: Final = 65_536  # SQLite writes this at once


class SqliteStore(ReleaseStore):
    """A ``ReleaseStore`` in one file."""

    def __init__(self, path: Path) -> None:
        """Open the file; a missing file or table is made.

        Raises:
            ServiceUnreachableError: The file cannot be opened, or is busy for long.
            StoreFullError: The disk is full.
            IntegrityError: The file is not a database, or one of a later version.
        """
        super().__init__(_DIALECT)
        self._path = path
        with self._mapped():
            self._connection = sqlite3.connect(
                path, timeout=10.0, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                # a commit must be on the disk when it returns, because devices act on it
                self._connection.execute("PRAGMA synchronous = FULL")
                with self._transaction("writing") as execute:
                    prepare(execute, _DIALECT)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self, kind: Kind) -> Iterator[Execute]:
        with self._mapped():
            # there is one writer, also for counting
            self._connection.execute("BEGIN" if kind == "reading" else "BEGIN IMMEDIATE")
            execute: Any = self._connection.execute
            try:
                yield execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _is_full(self, error: sqlite3.OperationalError) -> bool:
        code = error.sqlite_errorcode
        if code & _PRIMARY == sqlite3.SQLITE_FULL:
            return True
        # for its index in shared memory, SQLite reports any failed write as an I/O error
        if code & _PRIMARY != sqlite3.SQLITE_IOERR:
            return False
        try:
            return disk_usage(self._path.absolute().parent).free < _FULL_BYTES
        except OSError:
            return False

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "Could not decode to UTF-8" in str(error):
                raise altered(f"release store {self._path}", error) from error
            if self._is_full(error):
                raise StoreFullError(
                    f"release store {self._path}: the disk is full: free some space, then repeat "
                    "the command"
                ) from error
            raise ServiceUnreachableError(
                f"release store {self._path}: {error}; check that its folder exists and is "
                "writable, and that no process holds a lock on the file"
            ) from error
        except sqlite3.ProgrammingError as error:
            raise DeployError(f"release store {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise IntegrityError(
                f"release store {self._path}: {error}; restore its last backup"
            ) from error
