"""The database of one partition: reads, scans and transactions.

One writer process and one writing thread; readers of other processes open it
read-only beside it.
"""

from collections.abc import Iterator
from pathlib import Path

from rocksdict import Rdict

from walle_stream.errors import FormatVersionError
from walle_stream.store.keys import FORMAT_KEY, FORMAT_VERSION
from walle_stream.store.rocks import map_rocks_errors, open_rocks, write_options
from walle_stream.store.transaction import Transaction


class PartitionStore:
    """A partition's database. Close it; ``with`` does."""

    def __init__(self, path: Path, database: Rdict, *, sync: bool) -> None:
        """Wrap an opened database; use ``open``."""
        self.path = path
        self._database = database
        self._write_options = write_options(sync=sync)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, sync: bool = False) -> "PartitionStore":
        """Open or make a partition's database; blocks some 30 ms.

        Args:
            path: Its folder; parents are made.
            read_only: Read beside the process that writes.
            sync: Wait for the disk at every commit.

        Raises:
            FormatVersionError: It has another layout version.
            StoreError: It cannot be opened; see ``open_rocks``.
        """
        if not read_only:
            path.mkdir(parents=True, exist_ok=True)
        store = cls(path, open_rocks(path, read_only=read_only), sync=sync)
        version = store.get(FORMAT_KEY)
        if version is None:
            if not read_only:
                with map_rocks_errors(path):
                    store._database[FORMAT_KEY] = str(FORMAT_VERSION).encode()
        elif version != str(FORMAT_VERSION).encode():
            store.close()
            raise FormatVersionError(
                f"{path} has format {version.decode(errors='replace')}, this version reads "
                f"{FORMAT_VERSION}: use the version of walle_stream that wrote it, or a new "
                "--data-dir"
            )
        return store

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None when it has none."""
        with map_rocks_errors(self.path):
            value: bytes | None = self._database.get(key)
            return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the keys with a prefix, ascending.

        Args:
            prefix: Not empty.

        Yields:
            (key, value).
        """
        with map_rocks_errors(self.path):
            iterator = self._database.iter()
            iterator.seek(prefix)
            while iterator.valid():
                key: bytes = iterator.key()
                if not key.startswith(prefix):
                    return
                yield key, iterator.value()
                iterator.next()

    def begin(self) -> Transaction:
        """Return a new transaction, to be committed or dropped."""
        return Transaction(self._database, self.path, self._write_options)

    def close(self) -> None:
        """Release the database; may be called twice."""
        self._database.close()
