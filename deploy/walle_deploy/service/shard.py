"""A part of the table of known devices: 18 bytes a slot, open addressing, linear probing.

Rows are never removed one by one: when there are too many, those that were not seen for the
longest time go and the rest is laid out anew, all in numpy. So no lookup has to pass over
what is gone, and laying out a 64th of a million devices takes about a millisecond.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SLOTS_MIN: Final = 64
_FULL: Final = 0.6
"""Share of slots that are used before there are twice as many."""


class Gone(NamedTuple):
    """Rows that were given up."""

    classes: NDArray[np.uint16]
    sets: NDArray[np.uint32]


class Shard:
    """Rows of devices by their hash; columns are borrowed by ``registry``."""

    def __init__(self, rows_max: int) -> None:
        """Start empty."""
        self._rows_max = rows_max
        self.count = 0
        self._fill(
            _SLOTS_MIN,
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint16),
            np.empty(0, np.uint32),
        )

    def _fill(
        self,
        slots: int,
        hashes: NDArray[np.uint64],
        seen: NDArray[np.uint32],
        classes: NDArray[np.uint16],
        sets: NDArray[np.uint32],
    ) -> None:
        home = (hashes & np.uint64(slots - 1)).astype(np.int64)
        order = np.argsort(home, kind="stable")
        steps = np.arange(len(order))
        # the first free slot at or behind its home, as the one before it is placed already
        places = np.maximum.accumulate(home[order] - steps) + steps if len(order) else steps
        # what is pushed over the end lies in a tail, which grows when it must
        size = max(slots + slots // 8 + 64, int(places[-1]) + 64 if len(order) else 0)
        self.mask = slots - 1
        columns = []
        for values in (hashes, seen, classes, sets):
            column = np.zeros(size, values.dtype)
            column[places] = values[order]
            columns.append(column)
        self._columns = columns
        self.last = size - 1
        # an item of a memoryview is had in a third of an array's time
        self.hashes, self.seen, self.classes, self.sets = map(_view, columns)
        self._full = int(slots * _FULL)

    def make_room(self) -> Gone | None:
        """Make room for one more row.

        Returns:
            The rows that were given up for it, None where none had to be.
        """
        if self.count < min(self._full, self._rows_max) and not self.hashes[self.last - 1]:
            return None
        hashes, seen, classes, sets = self._columns
        used = np.flatnonzero(hashes)
        gone = None
        if self.count >= self._rows_max:
            kept = max(self._rows_max - self._rows_max // 16 - 1, 0)
            order = np.argpartition(seen[used], len(used) - kept) if kept else np.arange(len(used))
            away, used = used[order[: len(used) - kept]], used[order[len(used) - kept :]]
            gone = Gone(classes[away], sets[away])
        self.count = len(used)
        slots = self.mask + 1
        while self.count >= int(slots * _FULL):
            slots *= 2
        if gone is None and slots == self.mask + 1:
            slots *= 2  # one long run of rows fills the tail
        self._fill(slots, hashes[used], seen[used], classes[used], sets[used])
        return gone


def _view(column: NDArray[Any]) -> Any:
    return memoryview(column)
