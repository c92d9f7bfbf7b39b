"""Window of a partition's journal, and the devices to write before batches can leave it.

A device's open pages change with every event, and writing them at every commit would limit the
throughput. A commit therefore writes its batch as one row, and writes a device only after it has
been dirty for a *horizon* of events or bytes. Short pages come and go without a write. After a
crash, ``recovery`` gives the journal's rows to a machine again.

Invariant: for every dirty device the journal holds every batch since the device became dirty.
"""

from collections import deque
from typing import Final

import msgspec

JOURNAL_EVENTS_DEFAULT: Final = 20_000

JOURNAL_MAX_BYTES: Final = 16 * 2**20
"""Maximum bytes of the journal, however few events they hold."""


class _Kept(msgspec.Struct, frozen=True):
    number: int
    events: int
    size_bytes: int


class JournalWindow:
    """The batches in a partition's journal. One thread."""

    def __init__(self, max_events: int) -> None:
        """Begin with an empty journal; with 0 events every commit writes every device."""
        self._max_events = max_events
        self._kept: deque[_Kept] = deque()
        self._events = self._bytes = 0

    def add(self, number: int, events: int, size_bytes: int) -> None:
        """Add a batch."""
        self._kept.append(_Kept(number, events, size_bytes))
        self._events += events
        self._bytes += size_bytes

    @property
    def due(self) -> int:
        """Last batch whose dirty devices, with earlier ones, must be written now; 0 for none."""
        events, size_bytes, due = self._events, self._bytes, 0
        for batch in self._kept:
            if events <= self._max_events and size_bytes <= JOURNAL_MAX_BYTES:
                break
            events -= batch.events
            size_bytes -= batch.size_bytes
            due = batch.number
        return due

    def release(self, oldest_dirty: int | None) -> list[int]:
        """Remove batches whose devices are all stored; return their numbers, ascending.

        ``oldest_dirty`` is the first batch with a device that is not stored; None for none.
        """
        released = []
        kept = self._kept
        while kept and (oldest_dirty is None or kept[0].number < oldest_dirty):
            batch = kept.popleft()
            self._events -= batch.events
            self._bytes -= batch.size_bytes
            released.append(batch.number)
        return released
