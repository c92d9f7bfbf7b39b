"""How the values of a version's runs moved against the previous version's.

Values are counted in buckets of a relative width of 2 %. Where a share of the old values lies
above some value, at most that share of the new ones may lie above ``tolerated`` times it: it is
tested at a few values, quantiles of the old ones. Runs of one device are alike, so all runs
of a device count as one, and a device counts once a step (``monitoring.counting``).

Times are compared between runs of calls of like size alone (``matched``): a call costs something
besides its runs, and a version that few devices have has small calls.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from walle_deploy.model.health import GAMMA, VersionHealth
from walle_deploy.release.evidence import DRIFT_BETS, Counts, exceeds_other
from walle_deploy.release.limits import DriftGate, LatencyGate
from walle_stream.wire.buckets import CALL_BUCKETS, bucket_of

SLOWER: Final = (0.5, 0.9, 0.99)
_SIZES: Final = (0.1, 0.5, 0.9)


class Values(msgspec.Struct, frozen=True):
    """Values of a version's runs."""

    buckets: Mapping[int, float]
    """Runs by bucket, see ``model.health.GAMMA``."""
    devices: float
    """That made them, or fewer: what they are worth as evidence."""

    def quantile(self, share: float) -> int:
        """Return the bucket up to which a share of the runs, 0 to 1, lies."""
        wanted = share * sum(self.buckets.values())
        total = 0.0
        for bucket in sorted(self.buckets):
            total += self.buckets[bucket]
            if total >= wanted:
                return bucket
        return 0

    def above(self, bucket: int) -> Counts:
        """Return how many devices' worth of runs lies above a bucket, without itself."""
        runs: float = sum(self.buckets.values())
        marked = sum(count for other, count in self.buckets.items() if other > bucket)
        # not every device that reported has a value
        worth = min(self.devices, runs)
        return Counts(worth * marked / runs, worth)


class Beyond(NamedTuple):
    """How many devices of both groups lie beyond a quantile of the old values."""

    what: str
    """For people."""
    new: Counts
    """Beyond what is tolerated of it."""
    old: Counts
    is_above: bool = True

    def evidence(self, more: int = 0) -> float:
        """Return the logarithm of the e-value, as with more new devices above all others."""
        marked = self.new.marked + (more if self.is_above else 0)
        return exceeds_other(Counts(marked, self.new.total + more), self.old, DRIFT_BETS)


class Moved(NamedTuple):
    """What was found of values of two groups."""

    new: Values
    old: Values
    tests: tuple[Beyond, ...] = ()
    is_alike: bool = True
    """Whether values of like calls were compared; without, only bounds of them."""

    @property
    def is_known(self) -> bool:
        """Whether both groups have values."""
        return bool(self.new.buckets and self.old.buckets)

    def evidence(self, more: int = 0) -> float:
        """Return the logarithm of the e-value against: they moved by what is tolerated at most.

        ``more`` adds that number of new devices, whose values are above all others.
        """
        return _mean([test.evidence(more) for test in self.tests]) if self.tests else 0.0

    def ratio(self, share: float) -> float:
        """Return how many times as large a quantile, 0 to 1, of the new values is."""
        return float(GAMMA ** (self.new.quantile(share) - self.old.quantile(share)))


def moved_latency(gate: LatencyGate, new: VersionHealth, old: VersionHealth) -> Moved:
    """Compare the times of runs of two groups."""
    moved = Moved(Values(new.latency_us, new.devices), Values(old.latency_us, old.devices))
    if not (gate.enabled and moved.is_known):
        return moved
    least = bucket_of(1_000.0 * gate.floor)
    mine, usual = _matched(moved.new, moved.old, least)
    if mine.buckets:
        return Moved(mine, usual, _grew(mine, usual, gate.tolerated))
    tests = _grew(*_bounded(moved.new, moved.old, least), gate.tolerated)
    return Moved(moved.new, moved.old, tests, is_alike=False)


def moved_output(gate: DriftGate, new: VersionHealth, old: VersionHealth) -> Moved:
    """Compare the sizes of the output of runs of two groups."""
    mine, usual = Values(new.output_bytes, new.devices), Values(old.output_bytes, old.devices)
    moved = Moved(mine, usual)
    if not (gate.enabled and moved.is_known):
        return moved
    return Moved(mine, usual, _changed(mine, usual, gate.tolerated))


def _matched(new: Values, old: Values, least: int) -> tuple[Values, Values]:
    """Return the times of both versions as if they had been called alike.

    Runs of calls of a size that one version has not are left out; the old ones get the weights
    of the new ones' sizes (direct standardisation), and count for as many as they are worth
    then (Kish's effective number).
    """
    mine, usual = _by_call(new.buckets, least), _by_call(old.buckets, least)
    pairs = [(mine[size], usual[size]) for size in mine.keys() & usual.keys()]
    return _standardised(pairs, new.devices, old.devices)


def _bounded(new: Values, old: Values, least: int) -> tuple[Values, Values]:
    """Return times of both versions, where no calls are alike, so that the new ones are no longer.

    They are of a version that is as fast. A call costs something besides its runs, so in larger
    calls a run takes no longer; and a call of fewer runs takes no longer in all. Each size of the
    new calls is compared with the nearest one of the old, by run or by call.
    """
    mine, usual = _by_call(new.buckets, least), _by_call(old.buckets, least)
    pairs = []
    for size, times in mine.items():
        near = min(usual, key=lambda candidate: (abs(candidate - size), candidate))
        if size > near:
            pairs.append((times, usual[near]))
        else:
            # of a size there are calls of 2**size to 2**(size + 1) - 1 runs
            pairs.append((_shifted(times, size), _shifted(usual[near], near + 1)))
    return _standardised(pairs, new.devices, old.devices)


def _shifted(buckets: Mapping[int, float], size: int) -> dict[int, float]:
    # a rounded shift is the same for equal sizes; of unequal ones half a bucket is nothing
    shift = round(size * math.log(2) / math.log(GAMMA))
    return {bucket + shift: count for bucket, count in buckets.items()}


def _standardised(
    pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]],
    new_devices: float,
    old_devices: float,
) -> tuple[Values, Values]:
    total = sum(sum(mine.values()) for mine, _ in pairs)
    merged: dict[int, float] = {}
    weighted: dict[int, float] = {}
    worth = runs = 0.0
    for mine, usual in pairs:
        share = sum(mine.values()) / total
        runs = float(sum(usual.values()))
        worth += share * share / runs
        for bucket, count in mine.items():
            merged[bucket] = merged.get(bucket, 0.0) + count
        for bucket, count in usual.items():
            weighted[bucket] = weighted.get(bucket, 0.0) + share * count / runs
    runs = 1 / worth if worth else 0.0
    weighted = {bucket: runs * share for bucket, share in weighted.items()}
    return Values(merged, new_devices), Values(weighted, old_devices)


def _by_call(buckets: Mapping[int, float], least: int) -> dict[int, dict[int, float]]:
    calls: dict[int, dict[int, float]] = {}
    for bucket, count in buckets.items():
        own = calls.setdefault(bucket // CALL_BUCKETS, {})
        at = max(bucket % CALL_BUCKETS, least)
        own[at] = own.get(at, 0.0) + count
    return calls


def _grew(new: Values, old: Values, tolerated: float) -> tuple[Beyond, ...]:
    """Return tests of: values grew by what is tolerated at most."""
    shift = _buckets(tolerated)
    return tuple(_larger(new, old, share, shift) for share in SLOWER)


def _changed(new: Values, old: Values, tolerated: float) -> tuple[Beyond, ...]:
    """Return tests of: values grew or shrank by that at most."""
    shift = _buckets(tolerated)
    tests = []
    for share in _SIZES:
        bucket = old.quantile(share)
        tests.append(_larger(new, old, share, shift))
        # the bucket itself is not among those below it: a value that stays is no change
        smaller, usual = new.above(bucket - 1 - shift), old.above(bucket - 1)
        what = f"below p{100 * share:g}"
        tests.append(Beyond(what, _without(smaller), _without(usual), is_above=False))
    return tuple(tests)


def _larger(new: Values, old: Values, share: float, shift: int) -> Beyond:
    bucket = old.quantile(share)
    return Beyond(f"above p{100 * share:g}", new.above(bucket + shift), old.above(bucket))


def _without(counts: Counts) -> Counts:
    return Counts(counts.total - counts.marked, counts.total)


def _buckets(factor: float) -> int:
    # one more: two values of neighbouring buckets may be nearly two widths apart
    return math.ceil(math.log(factor) / math.log(GAMMA)) + 1


def _mean(logarithms: list[float]) -> float:
    return float(np.logaddexp.reduce(np.array(logarithms))) - math.log(len(logarithms))
