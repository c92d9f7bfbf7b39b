"""A transaction: what is written together becomes visible and durable together."""

from enum import Enum
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from walle_stream.errors import TransactionStateError
from walle_stream.faults import crash_point
from walle_stream.store.rocks import map_rocks_errors


class TransactionState(Enum):
    """Where a transaction stands."""

    OPEN = "open"
    COMMITTED = "committed"
    DROPPED = "dropped"


class Transaction:
    """Collects writes for ONE write batch. Used by one thread, once."""

    __slots__ = ("_batch", "_database", "_options", "_path", "state")

    def __init__(self, database: Rdict, path: Path, options: WriteOptions) -> None:
        """Begin; use ``PartitionStore.begin``."""
        self._database = database
        self._path = path
        self._options = options
        self._batch = WriteBatch(raw_mode=True)
        self.state = TransactionState.OPEN

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value.

        Raises:
            TransactionStateError: The transaction is over.
        """
        if self.state is not TransactionState.OPEN:
            raise self._over("put")
        self._batch.put(key, value)

    def delete(self, key: bytes) -> None:
        """Delete a key, existing or not.

        Raises:
            TransactionStateError: The transaction is over.
        """
        if self.state is not TransactionState.OPEN:
            raise self._over("delete")
        self._batch.delete(key)

    def commit(self) -> None:
        """Write everything in one write batch; blocks.

        Raises:
            StoreError: Nothing was written (disk full, damaged).
            TransactionStateError: The transaction is over.
        """
        if self.state is not TransactionState.OPEN:
            raise self._over("commit")
        crash_point("commit.before")
        self.state = TransactionState.DROPPED
        with map_rocks_errors(self._path):
            self._database.write(self._batch, self._options)
        self.state = TransactionState.COMMITTED
        crash_point("commit.after")

    def drop(self) -> None:
        """Forget everything; after a commit this does nothing."""
        if self.state is TransactionState.OPEN:
            self.state = TransactionState.DROPPED

    def _over(self, action: str) -> TransactionStateError:
        return TransactionStateError(
            f"{action} on a transaction of {self._path} that is {self.state.value}: begin a new one"
        )
