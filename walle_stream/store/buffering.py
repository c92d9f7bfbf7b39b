"""Collective storage (Walle §"collective storage"): tables behind memory.

A task writes small rows often. A buffering table keeps them in memory in front
of the transaction: rows written again cost nothing more, reads see what was
written, and rows move into the transaction's write batch on row count, on
bytes, on age, before a scan and at the commit. They never reach the disk on
their own, so a commit stays all or nothing.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from walle_stream.faults import crash_point

_DELETED: Final = None


class RowStore(Protocol):
    """Where committed rows are read from."""

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of a key."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys with a prefix, ascending."""
        ...


class RowWriter(Protocol):
    """Where rows go when they are flushed: the current transaction."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""

    def delete(self, key: bytes) -> None:
        """Delete a key."""


class FlushPolicy(msgspec.Struct, frozen=True):
    """When rows leave the buffer on their own."""

    max_rows: int = 4_096
    max_bytes: int = 4 * 1024 * 1024
    max_age_ms: int = 1_000
    """Age of the oldest row, on the clock that ``put`` is given."""


class BufferingTable:
    """One task's table of one partition. One thread.

    Flushed rows stay readable (``get``, ``scan``) until ``mark_committed``,
    because the store does not show them before the commit.
    """

    __slots__ = ("_buffer", "_bytes", "_flushed", "_oldest_ms", "_policy", "_store", "_writer")

    def __init__(self, store: RowStore, policy: FlushPolicy) -> None:
        """Make an empty buffer.

        Args:
            store: The committed rows.
            policy: When to flush.
        """
        self._store = store
        self._policy = policy
        self._writer: RowWriter | None = None
        self._buffer: dict[bytes, bytes | None] = {}
        self._flushed: dict[bytes, bytes | None] = {}
        self._bytes = 0
        self._oldest_ms = 0

    def bind(self, writer: RowWriter) -> None:
        """Name the transaction that takes the rows.

        Args:
            writer: The current transaction.
        """
        self._writer = writer

    def put(self, key: bytes, value: bytes | None, now_ms: int = 0) -> None:
        """Write a row into memory.

        Args:
            key: The row's key.
            value: Its value; None deletes it.
            now_ms: Any clock that does not go back, for the age.
        """
        buffer = self._buffer
        if not buffer:
            self._oldest_ms = now_ms
        buffer[key] = value
        self._bytes += len(key) + (len(value) if value else 0)
        policy = self._policy
        if (
            len(buffer) >= policy.max_rows
            or self._bytes >= policy.max_bytes
            or now_ms - self._oldest_ms >= policy.max_age_ms
        ):
            self.flush()

    def get(self, key: bytes) -> bytes | None:
        """Return a row as last written, committed or not."""
        if key in self._buffer:
            return self._buffer[key]
        if key in self._flushed:
            return self._flushed[key]
        return self._store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows as last written, ascending; flushes first.

        Args:
            prefix: Of the keys.

        Yields:
            (key, value).
        """
        self.flush()
        changes = sorted(
            (key, value) for key, value in self._flushed.items() if key.startswith(prefix)
        )
        position = 0
        for key, value in self._store.scan(prefix):
            while position < len(changes) and changes[position][0] < key:
                if changes[position][1] is not _DELETED:
                    yield changes[position][0], changes[position][1] or b""
                position += 1
            if position < len(changes) and changes[position][0] == key:
                if changes[position][1] is not _DELETED:
                    yield key, changes[position][1] or b""
                position += 1
            else:
                yield key, value
        for key, changed in changes[position:]:
            if changed is not _DELETED:
                yield key, changed

    def flush(self) -> None:
        """Move the rows into the bound transaction's write batch."""
        buffer, writer = self._buffer, self._writer
        if not buffer or writer is None:
            return
        crash_point("flush.before")
        for key, value in buffer.items():
            if value is _DELETED:
                writer.delete(key)
            else:
                writer.put(key, value)
        self._flushed.update(buffer)
        self._buffer = {}
        self._bytes = 0

    def mark_committed(self) -> None:
        """Forget flushed rows: the store shows them now."""
        self._flushed = {}
