"""How many different devices: exact up to a bound, then estimated with a known error.

A set keeps 64-bit hashes of device ids (blake2b; two of a million ids share one with a
probability of 3e-8). Beyond its bound it halves the range of hashes that it keeps, as often as
needed (adaptive sampling, Flajolet 1990): the number is then that of the kept ones times the
halvings, with a standard error of 1.2 / sqrt(bound), 0.12 % for a million. Whatever the order,
the same devices give the same set, and sets of several workers merge to the set of them all.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXACT_DEVICES: Final = 1_000_000
"""Bound of a set: 8 MB of hashes."""

_PENDING: Final = 1_024
_TOP: Final = 64


class DeviceSet:
    """A set of devices. One thread."""

    def __init__(self, bound: int = EXACT_DEVICES) -> None:
        """Start empty.

        Args:
            bound: Most hashes that are kept, ≥ 1.
        """
        self._bound = bound
        self._halvings = 0
        self._sorted: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._pending: set[int] = set()

    def __len__(self) -> int:
        """Return how many devices there are; an estimate unless ``is_exact``."""
        self._settle()
        return len(self._sorted) << self._halvings

    @property
    def is_exact(self) -> bool:
        """Whether every device is kept."""
        self._settle()
        return not self._halvings

    def add(self, hashes: Iterable[int]) -> None:
        """Add devices.

        Args:
            hashes: By ``device_hash``.
        """
        self._pending.update(hashes)
        if len(self._pending) > max(_PENDING, len(self._sorted) >> 3):
            self._settle()

    def merge(self, other: "DeviceSet") -> None:
        """Add the devices of another set.

        Args:
            other: Of the same bound; stays as it is.
        """
        _, halvings, hashes = other.dump()
        self._settle()
        self._halvings = max(self._halvings, halvings)
        self._sorted = np.union1d(self._sorted, np.frombuffer(hashes, "<u8").astype(np.uint64))
        self._shrink()

    def dump(self) -> tuple[int, int, bytes]:
        """Return what ``load`` takes."""
        self._settle()
        return self._bound, self._halvings, self._sorted.astype("<u8").tobytes()

    @classmethod
    def load(cls, dumped: tuple[int, int, bytes]) -> Self:
        """Return a set that was dumped.

        Args:
            dumped: Trusted, as it comes from the own store.
        """
        found = cls(dumped[0])
        found._halvings = dumped[1]
        found._sorted = np.frombuffer(dumped[2], "<u8").astype(np.uint64)
        return found

    def _settle(self) -> None:
        if self._pending:
            new = np.fromiter(self._pending, np.uint64, len(self._pending))
            self._pending = set()
            self._sorted = np.union1d(self._sorted, new)
            self._shrink()

    def _shrink(self) -> None:
        # hashes are uniform: those below 2**(64 - n) are one in 2**n
        while True:
            if self._halvings:
                limit = np.uint64(1 << (_TOP - self._halvings))
                self._sorted = self._sorted[: int(np.searchsorted(self._sorted, limit))]
            if len(self._sorted) <= self._bound:
                return
            self._halvings += 1


def device_hash(device_id: str) -> int:
    """Return the hash that a set keeps."""
    return int.from_bytes(blake2b(device_id.encode(), digest_size=8).digest(), "little")
