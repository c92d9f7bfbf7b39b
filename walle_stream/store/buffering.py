"""Collective storage (Walle §"collective storage"): tables buffered in memory.

A task often writes small rows. A buffering table keeps them in memory in front of the transaction:
writing a row again costs nothing more. Rows move to the transaction's write batch by row count, by
bytes, by age and at the commit. They never reach the disk by themselves, so a commit stays all or
nothing.
"""

from collections.abc import Mapping

import msgspec

from walle_stream.errors import TransactionStateError
from walle_stream.faults import crash_point
from walle_stream.store.transaction import Transaction


class FlushPolicy(msgspec.Struct, frozen=True):
    """Limits above which rows leave the buffer before the commit."""

    max_rows: int = 4_096
    max_bytes: int = 4 * 1024 * 1024
    """Bytes of keys and values."""
    max_age_ms: int = 1_000
    """Age of the oldest row, by the clock passed to ``put_rows``."""


class BufferingTable:
    """Buffered table of one task in one partition. One thread.

    Bind it to each transaction before the first write. The transaction then flushes it at the
    commit, and empties it when the transaction is dropped.
    """

    __slots__ = ("_buffer", "_bytes", "_oldest_ms", "_policy", "_transaction")

    def __init__(self, policy: FlushPolicy) -> None:
        """Make an empty buffer."""
        self._policy = policy
        self._transaction: Transaction | None = None
        self._buffer: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._oldest_ms = 0

    def bind(self, transaction: Transaction) -> None:
        """Set the transaction that takes the rows; may be called twice."""
        if transaction is not self._transaction:
            transaction.join(self)
            self._transaction = transaction

    def put_rows(self, rows: Mapping[bytes, bytes | None], now_ms: int) -> None:
        """Write rows into memory; None deletes a key. Flushes when a limit is reached.

        ``now_ms`` must always come from the same clock. A flush without a bound transaction raises
        ``TransactionStateError``.
        """
        buffer, policy = self._buffer, self._policy
        if not buffer:
            self._oldest_ms = now_ms
        if buffer.keys().isdisjoint(rows):
            self._bytes += sum(map(len, rows))
        else:
            for key in rows:
                replaced = buffer.get(key)
                if replaced is not None:
                    self._bytes -= len(replaced)
                elif key not in buffer:
                    self._bytes += len(key)
        self._bytes += sum(len(value) for value in rows.values() if value is not None)
        buffer.update(rows)
        if (
            len(buffer) >= policy.max_rows
            or self._bytes >= policy.max_bytes
            or now_ms - self._oldest_ms >= policy.max_age_ms
        ):
            self.flush()

    def flush(self) -> None:
        """Move the rows into the bound transaction; its commit calls this.

        Raises:
            TransactionStateError: There are rows, but no transaction is bound.
        """
        buffer, transaction = self._buffer, self._transaction
        if not buffer:
            return
        if transaction is None:
            raise TransactionStateError(
                f"{len(buffer)} rows have no transaction: bind the table first"
            )
        crash_point("flush.before")
        transaction.put_rows(buffer)
        self._buffer = {}
        self._bytes = 0

    def mark_committed(self) -> None:
        """Release the transaction: its rows are in the store now."""
        self._transaction = None

    def discard(self) -> None:
        """Forget the rows and the dropped transaction."""
        self._transaction = None
        self._buffer = {}
        self._bytes = 0
