"""The database of one partition: reads, scans and transactions.

One process and one thread write. Readers in other processes open the database read-only beside it
and see the commits made until then.

After a failed commit (disk full) the database takes no further commit: RocksDB's log refuses it,
and only opening again shows the log's contents. Reads still work. ``close`` never fails: committed
data is in the log, and the lock is released in any case.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec
from rocksdict import Checkpoint, Rdict, ReadOptions, WriteBatch

from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    FormatVersionError,
    StoreCorruptedError,
    StoreError,
    StoreLockedError,
    TransactionStateError,
)
from walle_stream.store.files import make_folder
from walle_stream.store.keys import FORMAT_KEY, FORMAT_VERSION, TABLE_VERSIONS, TABLES_KEY
from walle_stream.store.keyspace import KeySpace
from walle_stream.store.rocks import (
    RocksErrorMap,
    durability_of,
    open_rocks,
    scan_rocks,
)
from walle_stream.store.transaction import Transaction, TransactionState, prefix_end

_log = logging.getLogger(__name__)

_CHUNK_ROWS: Final = 256
_RETRY_S: Final = 0.05

type _Rows = Iterator[tuple[bytes, bytes]]


class Tenant(Protocol):
    """Interface of an owner of rows in a partition's database."""

    def copied(self) -> None:
        """Prepare for a copy of the database for a snapshot."""

    def kept(self) -> None:
        """Record that the last copy is a snapshot that every later owner will find."""

    def leave(self) -> None:
        """Release the rows: the database is about to be closed."""


class PartitionStore(AbstractContextManager["PartitionStore"]):
    """A partition's database. Close it; ``with`` does.

    Reading raises ``StoreError`` when it is closed or damaged.
    """

    def __init__(
        self, path: Path, database: Rdict, *, sync_ms: float | None, read_only: bool
    ) -> None:
        """Wrap an opened database; use ``open``."""
        self.path = path
        self.durability = durability_of(database, path, sync_ms)
        """Tracker of the commits that survive a power cut."""
        self.is_read_only = read_only
        self._database = database
        self._map_errors = RocksErrorMap(path)
        self._transaction: Transaction | None = None
        self._failure: StoreError | None = None
        self._scans: dict[int, list[_Rows]] = {}
        self._is_closed = False
        self.tenant: Tenant | None = None
        """Owner of a ``space`` of the database."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool = False,
        sync_ms: float | None = None,
        lock_timeout_s: float = 0.0,
    ) -> "PartitionStore":
        """Open or make a partition's database; blocks some 30 ms.

        Parents of its folder are made. ``read_only`` reads beside the process that writes.
        ``sync_ms`` is the flush interval of commits (``store.durability``). ``lock_timeout_s`` is
        the wait for an owner that is about to release it.

        Raises:
            FormatVersionError: It has another layout version.
            StoreLockedError: Another process writes it.
            StoreMissingError: There is no database to read.
            StoreError: It cannot be opened; see ``open_rocks``.
        """
        if not read_only:
            try:
                make_folder(path)
            except OSError as error:
                raise StoreError(f"the folder {path} cannot be made: {error}") from error
        deadline_ms = monotonic_ms() + lock_timeout_s * 1000.0
        while True:
            try:
                database = open_rocks(path, read_only=read_only)
            except StoreLockedError:
                if monotonic_ms() >= deadline_ms:
                    raise
                time.sleep(_RETRY_S)
            else:
                break
        store = cls(path, database, sync_ms=sync_ms, read_only=read_only)
        with ExitStack() as undo:
            undo.callback(store.close)
            store._check_format()
            undo.pop_all()
        return store

    def checkpoint(self, path: Path) -> None:
        """Copy the database at its last commit to a new folder; blocks some 100 ms.

        Tables are linked, not copied, so the folder must be on the same disk.
        """
        if self.tenant is not None:
            self.tenant.copied()
        with self._map_errors:
            Checkpoint(self._database).create_checkpoint(str(path))

    def space(self, base: bytes) -> KeySpace:
        """Return the rows whose keys begin with these bytes, for a table of its own."""
        return KeySpace(self._database, self.path, base)

    # Reading

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with self._map_errors:
            value: bytes | None = self._database.get(key)
            return value

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, in their order."""
        with self._map_errors:
            return cast("list[bytes | None]", self._database.get(list(keys)))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over keys with a prefix (not empty, not all ``0xff``); see ``scan_range``."""
        return self.scan_range(prefix, prefix_end(prefix))

    def scan_range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over start ≤ key < end, ascending, as of this call.

        Later commits are not visible. A scan that is still running when the database is closed
        raises ``StoreError`` at its next rows.
        """
        items = scan_rocks(self._database, self.path, start, end)
        rows = list(islice(items, _CHUNK_ROWS))
        if len(rows) < _CHUNK_ROWS:
            return iter(rows)
        # a live iterator keeps the database and its lock, so ``close`` must be able to drop it
        box = [items]
        self._scans[id(box)] = box
        return self._scan_on(rows, box)

    def skim(self, start: bytes, end: bytes, after: Callable[[bytes], bytes | None]) -> None:
        """Visit keys start ≤ key < end, ascending, skipping the keys in between.

        ``after`` gets each key, and returns the next key to look for; None ends the search.
        """
        place: bytes | None = start
        with self._map_errors:
            bound = ReadOptions()
            bound.set_iterate_upper_bound(end)
            iterator = self._database.iter(bound)
            while place is not None:
                iterator.seek(place)
                place = after(iterator.key()) if iterator.valid() else None
            iterator.status()

    # Writing

    def begin(self) -> Transaction:
        """Return a new transaction; the previous one must be over.

        Raises:
            TransactionStateError: The previous transaction is still open.
            StoreError: Read-only or closed, or a commit failed: open the database again.
        """
        if self.is_read_only:
            raise StoreError(f"{self.path} was opened read-only and takes no writes")
        if self._is_closed:
            raise StoreError(f"{self.path} is closed: open it again")
        self._check_failure()
        if self._transaction is not None and self._transaction.state is TransactionState.OPEN:
            raise TransactionStateError(
                f"{self.path} has an open transaction: commit or drop it before the next"
            )
        self._transaction = Transaction(self)
        return self._transaction

    def write_rows(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows in one write batch (None deletes a key); transactions call it.

        Raises:
            StoreError: Nothing was written; open the database again.
        """
        self._check_failure()
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in rows.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            with self._map_errors:
                self._database.write(batch)
                self.durability.commit()
        except StoreError as error:
            self._failure = error
            raise

    # Life

    def close(self) -> None:
        """Drop the open transaction and release the database; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.tenant is not None:
            self.tenant.leave()
        if self._transaction is not None:
            self._transaction.drop()
        for box in self._scans.values():
            box.clear()
        self._scans = {}
        self.durability.close()
        try:
            with self._map_errors:
                self._database.close()
        except StoreError as error:
            _log.info("%s was not flushed when it closed; nothing is lost: %s", self.path, error)

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _scan_on(
        self, rows: list[tuple[bytes, bytes]], box: list[_Rows]
    ) -> Iterator[tuple[bytes, bytes]]:
        try:
            while True:
                yield from rows
                if len(rows) < _CHUNK_ROWS:
                    return
                if not box:
                    raise StoreError(f"{self.path} was closed during a scan: open it again")
                rows = list(islice(box[0], _CHUNK_ROWS))
        finally:
            box.clear()
            self._scans.pop(id(box), None)

    def _check_format(self) -> None:
        version, tables = self.multi_get((FORMAT_KEY, TABLES_KEY))
        if version is None and next(self.scan_range(b"", b"\xff"), None) is not None:
            raise StoreCorruptedError(
                f"{self.path} holds rows but no format: it is not a partition of walle_stream, "
                "or it is damaged; restore it from a copy or use a new --data-dir"
            )
        if version is not None and version != str(FORMAT_VERSION).encode():
            raise FormatVersionError(
                f"{self.path} has format {version.decode(errors='replace')}, this version reads "
                f"{FORMAT_VERSION}: use the version of walle_stream that wrote it, or a new "
                "--data-dir"
            )
        known = msgspec.json.encode(TABLE_VERSIONS)
        if tables is not None:
            _check_tables(self.path, tables)
        if tables != known and not self.is_read_only:
            self.write_rows(
                {
                    FORMAT_KEY: str(FORMAT_VERSION).encode(),
                    TABLES_KEY: known,
                }
            )

    def _check_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            raise type(failure)(
                f"{self.path} takes no commit after a failed one: open it again ({failure})"
            )


def _check_tables(path: Path, row: bytes) -> None:
    try:
        versions = msgspec.json.decode(row, type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorruptedError(
            f"{path} has a damaged row of table versions ({error}): restore it from a copy or use "
            "a new --data-dir"
        ) from error
    # a table that this version adds is empty in an older database
    for table, stored in sorted(versions.items()):
        known = TABLE_VERSIONS.get(table)
        if stored != known:
            raise FormatVersionError(
                f"{path} has table {table!r} in version {stored}, this version reads {known}: use "
                "the version of walle_stream that wrote it, or a new --data-dir"
            )
