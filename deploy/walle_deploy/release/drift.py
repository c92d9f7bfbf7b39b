"""How the values of a version's runs moved against the previous version's.

Values are counted in buckets of a relative width of 2 %. Where a share of the old values lies
above some value, at most that share of the new ones may lie above ``tolerated`` times it: it is
tested at a few values, quantiles of the old ones. Runs of one device are alike, so all runs
of a device count as one: the shares of the runs are taken as shares of the devices.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from walle_deploy.model.health import GAMMA
from walle_deploy.release.evidence import DRIFT_BETS, Counts, exceeds_other

SLOWER: Final = (0.5, 0.9, 0.99)
"""Quantiles at which latency is compared."""

_SIZES: Final = (0.1, 0.5, 0.9)


class Values(msgspec.Struct, frozen=True):
    """Values of a version's runs."""

    buckets: Mapping[int, int]
    """Runs by bucket, see ``model.health.GAMMA``."""
    devices: int
    """That made them."""

    def quantile(self, share: float) -> int:
        """Return the bucket up to which a share of the runs lies.

        Args:
            share: 0 to 1.
        """
        wanted = share * sum(self.buckets.values())
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return bucket
        return 0

    def above(self, bucket: int) -> Counts:
        """Return how many devices' worth of runs lies above a bucket.

        Args:
            bucket: Itself not included.
        """
        runs = sum(self.buckets.values())
        marked = sum(count for each, count in self.buckets.items() if each > bucket)
        # not every device that reported has a value
        worth = min(self.devices, runs)
        return Counts(worth * marked / runs, worth)


def grew(new: Values, old: Values, tolerated: float) -> float:
    """Return the logarithm of the e-value against: values grew by what is tolerated at most.

    Args:
        new: Of the new version; has runs.
        old: Of the previous one; has runs.
        tolerated: Factor, more than 1.
    """
    shift = _buckets(tolerated)
    return _mean([_larger(new, old, old.quantile(share), shift) for share in SLOWER])


def changed(new: Values, old: Values, tolerated: float) -> float:
    """Return the logarithm of the e-value against: values grew or shrank by that at most.

    Args:
        new: Of the new version; has runs.
        old: Of the previous one; has runs.
        tolerated: Factor, more than 1.
    """
    shift = _buckets(tolerated)
    found = []
    for share in _SIZES:
        bucket = old.quantile(share)
        found.append(_larger(new, old, bucket, shift))
        # the bucket itself is not among those below it: a value that stays is no change
        smaller, usual = new.above(bucket - 1 - shift), old.above(bucket - 1)
        found.append(exceeds_other(_without(smaller), _without(usual), DRIFT_BETS))
    return _mean(found)


def _larger(new: Values, old: Values, bucket: int, shift: int) -> float:
    return exceeds_other(new.above(bucket + shift), old.above(bucket), DRIFT_BETS)


def _without(counts: Counts) -> Counts:
    return Counts(counts.total - counts.marked, counts.total)


def _buckets(factor: float) -> int:
    # one more: two values of neighbouring buckets may be nearly two widths apart
    return math.ceil(math.log(factor) / math.log(GAMMA)) + 1


def _mean(logarithms: list[float]) -> float:
    return float(np.logaddexp.reduce(np.array(logarithms))) - math.log(len(logarithms))
