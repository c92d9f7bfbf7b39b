"""Very many ids in little memory: their 64-bit hashes, sorted, and where to begin to look.

8 bytes an id and a small index. An id that is not in the set is taken for one of n with a
probability of n / 2**64 (for ten millions: once in 10**12 questions): fit to decide what is
offered, never what may be read.
"""

from collections.abc import Iterable
from itertools import batched
from typing import Any

import numpy as np

from walle_deploy.policy.hashing import id_hash


class CompactIds:
    """A set of ids, or a mapping from ids to small numbers; never changed."""

    def __init__(self, ids: Iterable[str], numbers: Iterable[int] | None = None) -> None:
        """Read all ids in any order; of one that is there twice the last one counts.

        ``numbers`` has for each id one from 0 to 2**32 - 1; None for a set.
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
        # an item of a memoryview is had in a third of an array's time
        self._hashes: Any = memoryview(hashes)
        self._starts: Any = memoryview(starts)
        self._values: Any = None if values is None else memoryview(values[order][is_last])

    def __len__(self) -> int:
        """Return how many ids there are."""
        return len(self._hashes)

    def has(self, hashed: int) -> bool:
        """Tell whether an id is there, by its ``id_hash``."""
        return self._find(hashed) >= 0

    def number(self, hashed: int) -> int:
        """Return an id's number by its ``id_hash``, -1 where the id is not there."""
        index = self._find(hashed)
        return -1 if index < 0 else int(self._values[index])

    def _find(self, hashed: int) -> int:
        bucket = hashed >> self._shift
        hashes = self._hashes
        for index in range(self._starts[bucket], self._starts[bucket + 1]):
            if hashes[index] == hashed:
                return index
        return -1
