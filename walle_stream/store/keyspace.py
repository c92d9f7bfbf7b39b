"""Part of a database: rows whose keys have a common prefix, seen without it.

A table may thus have a database of its own (an empty prefix), or share a partition's database with
its commits, copies and snapshots.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rocksdict import Checkpoint, DbClosedError, Rdict, WriteBatch

from walle_stream.store.rocks import RocksErrorMap, scan_rocks
from walle_stream.store.transaction import prefix_end


class KeyBatch:
    """Rows of one ``KeySpace`` that are written together."""

    def __init__(self, base: bytes = b"") -> None:
        """Begin without a row."""
        self.rows = WriteBatch(raw_mode=True)
        self._base = base

    def put(self, key: bytes, value: bytes) -> None:
        """Set a row."""
        self.rows.put(self._base + key, value)

    def delete(self, key: bytes) -> None:
        """Remove a row."""
        self.rows.delete(self._base + key)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove the rows with start ≤ key < end."""
        self.rows.delete_range(self._base + start, self._base + end)


class KeySpace:
    """Rows with a common prefix; every method blocks, and raises ``StoreError`` on failure."""

    def __init__(self, database: Rdict, path: Path, base: bytes = b"") -> None:
        """Use the rows of an opened database whose keys begin with ``base``."""
        self._database, self._path, self._base = database, path, base
        self._map_errors = RocksErrorMap(path)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with self._map_errors:
            value: bytes | None = self._database.get(self._base + key)
            return value

    def scan(self, start: bytes, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over start ≤ key < end; without an end, over all keys with the prefix ``start``.

        See ``scan_rocks``.
        """
        base, size = self._base, len(self._base)
        first, last = base + start, prefix_end(base + start) if end is None else base + end
        for key, value in scan_rocks(self._database, self._path, first, last):
            yield key[size:], value

    def batch(self) -> KeyBatch:
        """Return an empty batch, for ``write``."""
        return KeyBatch(self._base)

    def write(self, batch: KeyBatch) -> None:
        """Write all rows of a batch, or none; the batch is used up."""
        with self._map_errors:
            self._database.write(batch.rows)

    def checkpoint(self, path: Path) -> None:
        """Copy the whole database to a new folder on the same disk."""
        with self._map_errors:
            Checkpoint(self._database).create_checkpoint(str(path))

    def close(self) -> None:
        """Close the whole database; may be called twice."""
        with self._map_errors, suppress(DbClosedError):
            self._database.close()

    def sync(self) -> None:
        """Make all writes survive a power cut."""
        with self._map_errors:
            self._database.flush_wal(sync=True)
