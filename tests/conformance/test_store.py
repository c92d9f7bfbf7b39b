"""Every store passes the suite: RocksDB, and a plain dict that shows it is about any store."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from walle_stream.errors import (
    StoreError,
    StoreLockedError,
    StoreMissingError,
    TransactionStateError,
)
from walle_stream.store.partition import PartitionStore
from walle_stream.store.transaction import Transaction, TransactionState, prefix_end
from walle_stream.testing.store_suite import StoreSuite


class TestPartitionStore(StoreSuite):
    def open_store(self, path: Path, *, read_only: bool = False) -> PartitionStore:
        return PartitionStore.open(path, read_only=read_only)


class TestDictStore(StoreSuite):
    def open_store(self, path: Path, *, read_only: bool = False) -> "DictStore":
        return DictStore(path, read_only=read_only)


class DictStore:
    places: ClassVar[dict[Path, dict[bytes, bytes]]] = {}
    writers: ClassVar[set[Path]] = set()

    def __init__(self, path: Path, *, read_only: bool) -> None:
        if read_only and path not in self.places:
            raise StoreMissingError(str(path))
        if not read_only and path in self.writers:
            raise StoreLockedError(str(path))
        self.path = path
        self.rows: dict[bytes, bytes] | None = self.places.setdefault(path, {})
        self.is_read_only = read_only
        self.transaction: Transaction | None = None
        if read_only:
            self.rows = dict(self.rows)
        else:
            self.writers.add(path)

    def opened(self) -> dict[bytes, bytes]:
        if self.rows is None:
            raise StoreError("closed")
        return self.rows

    def get(self, key: bytes) -> bytes | None:
        return self.opened().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self.opened()
        return [rows.get(key) for key in keys]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.scan_range(prefix, prefix_end(prefix))

    def scan_range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = sorted(row for row in self.opened().items() if start <= row[0] < end)
        return self.yield_rows(rows)

    def yield_rows(self, rows: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for row in rows:
            self.opened()
            yield row

    def begin(self) -> Transaction:
        self.opened()
        if self.is_read_only:
            raise StoreError("read-only")
        if self.transaction is not None and self.transaction.state is TransactionState.OPEN:
            raise TransactionStateError("still open")
        self.transaction = Transaction(self)
        return self.transaction

    def write_rows(self, rows: Mapping[bytes, bytes | None]) -> None:
        stored = self.opened()
        for key, value in rows.items():
            if value is None:
                stored.pop(key, None)
            else:
                stored[key] = value

    def close(self) -> None:
        if self.rows is not None:
            self.rows = None
            if not self.is_read_only:
                self.writers.discard(self.path)
            if self.transaction is not None:
                self.transaction.drop()
