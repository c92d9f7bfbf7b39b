"""Very many ids in little memory: their sorted 64-bit hashes, with an index of buckets.

A set takes 8 bytes per id and a small index. A foreign id is taken for one of n ids with a
probability of n / 2**64 (for ten million, once in 10**12 questions). That suffices for what is
offered, but never for what may be read.
"""

from collections.abc import Iterable
from itertools import batched
from typing import Any

import numpy as np

from walle_deploy.policy.hashing import id_hash


class CompactIds:
    """An immutable set of ids, or mapping from ids to small numbers."""

    def __init__(self, ids: Iterable[str], numbers: Iterable[int] | None = None) -> None:
        """Read all ids in any order; the last entry of a repeated id counts.

        ``numbers`` has a number from 0 to 2**32 - 1 for each id; None makes a set.
        """
        parts = [
            np.fromiter(map(id_hash, part), np.uint64)
            for part in batched(ids, 65_536, strict=False)
        ]
        hashes = np.concatenate(parts) if parts else np.empty(0, np.uint64)
        values = None if numbers is None else np.fromiter(numbers, np.uint32)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        is_last = np.ones(len(hashes), bool)
        is_last[:-1] = hashes[1:] != hashes[:-1]
        hashes = hashes[is_last]
        bits = min(max(len(hashes).bit_length(), 1), 24)
        self._shift = 64 - bits
        buckets = (hashes >> np.uint64(self._shift)).astype(np.uint32)
        starts = np.searchsorted(buckets, np.arange(2**bits + 1, dtype=np.uint32)).astype(np.uint32)
        # reading an item of a memoryview takes a third of an array's time
        self._hashes: Any = memoryview(hashes)
        self._starts: Any = memoryview(starts)
        self._values: Any = None if values is None else memoryview(values[order][is_last])

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._hashes)

    def has(self, hashed: int) -> bool:
        """Return whether an id is in the set, by its ``id_hash``."""
        return self._find(hashed) >= 0

    def number(self, hashed: int) -> int:
        """Return an id's number by its ``id_hash``, or -1 if the id is missing."""
        index = self._find(hashed)
        return -1 if index < 0 else int(self._values[index])

    def _find(self, hashed: int) -> int:
        bucket = hashed >> self._shift
        hashes = self._hashes
        for index in range(self._starts[bucket], self._starts[bucket + 1]):
            if hashes[index] == hashed:
                return index
        return -1
