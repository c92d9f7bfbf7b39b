"""A transaction: writes that become visible and durable together.

Rows are collected in memory (the last write of a key counts) and become ONE write batch at
``commit``. After a crash at any moment the store has all of them or none. Reads through the
transaction see its own writes before those of the store.

A failed commit ends the transaction and all writes to the store. Only opening the store again shows
whether the batch reached the log (by the offset in it). No write may follow before that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, Self

from walle_stream.errors import TransactionStateError
from walle_stream.faults import crash_point


class TransactionState(Enum):
    """State of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    DROPPED = "dropped"


class RowStore(Protocol):
    """Interface of the store below a transaction; one thread."""

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of a key."""

    def write_rows(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows in one write batch; None deletes. All or nothing."""


class Participant(Protocol):
    """Interface of a buffer in front of a transaction: a buffering table."""

    def flush(self) -> None:
        """Put the rows into the transaction, before its write batch is made."""

    def mark_committed(self) -> None:
        """Record that the rows are in the store."""

    def discard(self) -> None:
        """Forget the rows: the transaction was dropped."""


class Transaction:
    """Collector of writes for ONE write batch. Used by one thread, once.

    As a context manager it commits, or drops if the block raises. Afterwards every method but
    ``drop`` raises ``TransactionStateError``.
    """

    __slots__ = ("_participants", "_rows", "_store", "state")

    def __init__(self, store: RowStore) -> None:
        """Begin; use the store's ``begin``."""
        self._store = store
        self._rows: dict[bytes, bytes | None] = {}
        self._participants: list[Participant] = []
        self.state = TransactionState.OPEN

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""
        if self.state is not TransactionState.OPEN:
            raise self._over("put")
        self._rows[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a key, existing or not."""
        if self.state is not TransactionState.OPEN:
            raise self._over("delete")
        self._rows[key] = None

    def put_rows(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write many rows in one call; None deletes a key."""
        if self.state is not TransactionState.OPEN:
            raise self._over("put_rows")
        self._rows.update(rows)

    def get(self, key: bytes) -> bytes | None:
        """Return a key's last written value, committed or not."""
        if self.state is not TransactionState.OPEN:
            raise self._over("get")
        rows = self._rows
        return rows[key] if key in rows else self._store.get(key)

    def join(self, participant: Participant) -> None:
        """Let a buffering table flush at the commit and learn the outcome."""
        if self.state is not TransactionState.OPEN:
            raise self._over("join")
        if not any(joined is participant for joined in self._participants):
            self._participants.append(participant)

    def commit(self) -> None:
        """Write all rows in one write batch; blocks.

        Raises:
            StoreError: The batch was refused as a whole (disk full, damaged); open the store again,
                then check its progress.
            TransactionStateError: The transaction is over.
        """
        if self.state is not TransactionState.OPEN:
            raise self._over("commit")
        try:
            for participant in self._participants:
                participant.flush()
            crash_point("commit.before")
            if self._rows:
                self._store.write_rows(self._rows)
        except BaseException:
            self.drop()
            raise
        self.state = TransactionState.COMMITTED
        crash_point("commit.after")
        for participant in self._participants:
            participant.mark_committed()
        self._rows = {}

    def drop(self) -> None:
        """Forget all rows; does nothing after the end."""
        if self.state is TransactionState.OPEN:
            self.state = TransactionState.DROPPED
            self._rows = {}
            for participant in self._participants:
                participant.discard()

    @property
    def row_count(self) -> int:
        """Number of rows in the write batch so far."""
        return len(self._rows)

    def __enter__(self) -> Self:
        """Return the transaction."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Commit, or drop if the block raised."""
        if kind is not None:
            self.drop()
        elif self.state is TransactionState.OPEN:
            self.commit()

    def _over(self, action: str) -> TransactionStateError:
        return TransactionStateError(
            f"{action} on a transaction that is {self.state.value}: begin a new one"
        )


def prefix_end(prefix: bytes) -> bytes:
    """Return the end (exclusive) of the range of all keys with a prefix.

    Raises:
        TransactionStateError: There is no end: every later key would match.
    """
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise TransactionStateError(f"the keys with prefix {prefix!r} have no end: name a range")
    return kept[:-1] + bytes((kept[-1] + 1,))
