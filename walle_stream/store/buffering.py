"""Collective storage (Walle §"collective storage"): tables behind memory.

A task writes small rows often. A buffering table keeps them in memory in front
of the transaction, as the values that the task wrote: a row written again
costs nothing more and only the last value is encoded. Reads see what was
written. Rows move into the transaction's write batch on row count, on bytes,
on age, before a scan and at the commit; they never reach the disk on their
own, so a commit stays all or nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Protocol, cast

import msgspec

from walle_stream.errors import TransactionStateError
from walle_stream.faults import crash_point
from walle_stream.store.transaction import Transaction


class CommittedRows(Protocol):
    """Where rows are read from while no transaction is bound."""

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of a key."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys with a prefix, ascending."""
        ...


class FlushPolicy(msgspec.Struct, frozen=True):
    """When rows leave the buffer on their own."""

    max_rows: int = 4_096
    max_bytes: int = 4 * 1024 * 1024
    """Keys and values, as ``RowCodec.size_of`` counts them."""
    max_age_ms: int = 1_000
    """Age of the oldest row, on the clock that ``put`` and ``advance`` are
    given: event or ingest time, or a monotonic clock."""


class FlushCause(Enum):
    """Why rows moved into the write batch."""

    ROWS = "rows"
    BYTES = "bytes"
    AGE = "age"
    READ = "read"
    COMMIT = "commit"


class RowCodec[V](msgspec.Struct, frozen=True):
    """How a table's values become rows; called at the flush and at reads."""

    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]
    size_of: Callable[[V], int]
    """Approximate bytes of a value, without encoding it."""


class BufferingTable[V = bytes]:
    """One task's table of one partition. One thread.

    Bind it to each transaction before the first write; the transaction then flushes it at its
    commit, and empties it when it is dropped. A flush that is due raises ``TransactionStateError``
    where none is bound.
    """

    __slots__ = (
        "_buffer",
        "_bytes",
        "_codec",
        "_now_ms",
        "_oldest_ms",
        "_policy",
        "_store",
        "_transaction",
        "flush_counts",
        "flushed_rows",
    )

    def __init__(
        self, store: CommittedRows, policy: FlushPolicy, codec: RowCodec[V] | None = None
    ) -> None:
        """Make an empty buffer; without a codec values are bytes."""
        self._store = store
        self._policy = policy
        # bytes pass as they are: ``bytes`` of bytes makes no copy
        self._codec = codec or cast("RowCodec[V]", RowCodec[bytes](bytes, bytes, len))
        self._transaction: Transaction | None = None
        self._buffer: dict[bytes, V | None] = {}
        self._bytes = 0
        self._now_ms = 0
        self._oldest_ms = 0
        self.flush_counts = dict.fromkeys(FlushCause, 0)
        """How often rows moved, by cause."""
        self.flushed_rows = 0
        """How many rows moved; rows written again before a flush count once."""

    def bind(self, transaction: Transaction) -> None:
        """Name the transaction that takes the rows; may be called twice."""
        if transaction is not self._transaction:
            transaction.join(self)
            self._transaction = transaction

    def put(self, key: bytes, value: V | None, now_ms: int | None = None) -> None:
        """Write a row into memory; flushes when the policy says so.

        The value is not to be changed any more; None deletes. ``now_ms`` moves the clock on, for
        the age.
        """
        buffer, policy, size_of = self._buffer, self._policy, self._codec.size_of
        if now_ms is not None:
            self._now_ms = now_ms
        if not buffer:
            self._oldest_ms = self._now_ms
        replaced = buffer.get(key)
        if replaced is not None:
            self._bytes -= size_of(replaced)
        elif key not in buffer:
            self._bytes += len(key)
        buffer[key] = value
        if value is not None:
            self._bytes += size_of(value)
        if len(buffer) >= policy.max_rows:
            self._flush(FlushCause.ROWS)
        elif self._bytes >= policy.max_bytes:
            self._flush(FlushCause.BYTES)
        elif self._now_ms - self._oldest_ms >= policy.max_age_ms:
            self._flush(FlushCause.AGE)

    def put_rows(self, rows: Mapping[bytes, V | None], now_ms: int | None = None) -> None:
        """Write rows into memory as ``put`` does; the policy is asked once, behind them."""
        buffer, policy, size_of = self._buffer, self._policy, self._codec.size_of
        if now_ms is not None:
            self._now_ms = now_ms
        if not buffer:
            self._oldest_ms = self._now_ms
        if buffer.keys().isdisjoint(rows):
            self._bytes += sum(map(len, rows))
        else:
            for key in rows:
                replaced = buffer.get(key)
                if replaced is not None:
                    self._bytes -= size_of(replaced)
                elif key not in buffer:
                    self._bytes += len(key)
        self._bytes += sum(size_of(value) for value in rows.values() if value is not None)
        buffer.update(rows)
        if len(buffer) >= policy.max_rows:
            self._flush(FlushCause.ROWS)
        elif self._bytes >= policy.max_bytes:
            self._flush(FlushCause.BYTES)
        elif buffer and self._now_ms - self._oldest_ms >= policy.max_age_ms:
            self._flush(FlushCause.AGE)

    def delete(self, key: bytes) -> None:
        """Delete a row, existing or not."""
        self.put(key, None)

    def advance(self, now_ms: int) -> None:
        """Move the clock on, always of one kind of time; flushes rows that are old enough."""
        self._now_ms = now_ms
        if self._buffer and now_ms - self._oldest_ms >= self._policy.max_age_ms:
            self._flush(FlushCause.AGE)

    def get(self, key: bytes) -> V | None:
        """Return a row as last written, committed or not."""
        if key in self._buffer:
            return self._buffer[key]
        row = (self._transaction or self._store).get(key)
        return None if row is None else self._codec.decode(row)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, V]]:
        """Iterate over rows as last written, ascending; flushes first."""
        if self._buffer:
            self._flush(FlushCause.READ)
        decode = self._codec.decode
        rows = (self._transaction or self._store).scan(prefix)
        return ((key, decode(row)) for key, row in rows)

    def flush(self) -> None:
        """Move the rows into the bound transaction; its commit calls this."""
        if self._buffer:
            self._flush(FlushCause.COMMIT)

    def mark_committed(self) -> None:
        """Let go of the transaction: the store shows its rows now."""
        self._transaction = None

    def discard(self) -> None:
        """Forget the rows and the transaction, which was dropped."""
        self._transaction = None
        self._buffer = {}
        self._bytes = 0

    def _flush(self, cause: FlushCause) -> None:
        buffer, transaction, encode = self._buffer, self._transaction, self._codec.encode
        if transaction is None:
            raise TransactionStateError(
                f"{len(buffer)} rows have no transaction to go to: bind the table first"
            )
        crash_point("flush.before")
        # all are encoded before the first moves: a failure leaves the buffer whole
        transaction.put_rows(
            {key: None if value is None else encode(value) for key, value in buffer.items()}
        )
        self.flush_counts[cause] += 1
        self.flushed_rows += len(buffer)
        self._buffer = {}
        self._bytes = 0
