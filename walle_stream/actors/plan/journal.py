"""Which batches a partition keeps, and which devices must be written so that it need not.

A device's open pages change with every event; to write them at every commit would
decide the throughput. So a commit writes its batch instead, as one row, and a
device only when it has been dirty for a *horizon* of events or bytes. Short pages
come and go without ever touching the store. After a death the rows of the journal
are given again to a machine of its own (``recovery``).

Invariant: for every dirty device the journal holds every batch since it became so.
"""

from collections import deque
from typing import Final

import msgspec

JOURNAL_EVENTS_DEFAULT: Final = 20_000

JOURNAL_MAX_BYTES: Final = 16 * 2**20
"""Most bytes that it holds, however few events those are."""


class _Kept(msgspec.Struct, frozen=True):
    number: int
    events: int
    size_bytes: int


class JournalWindow:
    """The batches in a partition's journal. One thread."""

    def __init__(self, max_events: int) -> None:
        """Begin with an empty journal; with 0 events to keep, every commit writes every device."""
        self._max_events = max_events
        self._kept: deque[_Kept] = deque()
        self._events = self._bytes = 0

    def add(self, number: int, events: int, size_bytes: int) -> None:
        """Keep a batch."""
        self._kept.append(_Kept(number, events, size_bytes))
        self._events += events
        self._bytes += size_bytes

    @property
    def due(self) -> int:
        """Devices dirty since this batch or an earlier one must be written; 0 for none."""
        events, size_bytes, due = self._events, self._bytes, 0
        for batch in self._kept:
            if events <= self._max_events and size_bytes <= JOURNAL_MAX_BYTES:
                break
            events -= batch.events
            size_bytes -= batch.size_bytes
            due = batch.number
        return due

    def release(self, oldest_dirty: int | None) -> list[int]:
        """Let go batches that are wholly in the store; return their numbers, ascending.

        ``oldest_dirty`` is the first batch of which something is not; None for none.
        """
        released = []
        kept = self._kept
        while kept and (oldest_dirty is None or kept[0].number < oldest_dirty):
            batch = kept.popleft()
            self._events -= batch.events
            self._bytes -= batch.size_bytes
            released.append(batch.number)
        return released
