"""Changes of the values of a version's runs against the previous version's.

Values are counted in buckets of a relative width of 2 %. Take the share of old values above some
value. At most that share of the new values may lie above ``tolerated`` times this value. The test
uses a few quantiles of the old values. Runs of one device are alike, so all runs of a device
count as one, and a device counts once per step (``monitoring.counting``).

Times are compared only between runs of calls of similar size (``matched``). A call costs something
besides its runs, and a version on few devices has small calls.
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
    """Number of runs by bucket, see ``model.health.GAMMA``."""
    devices: float
    """Number of devices that made the runs, or fewer: the weight of the runs as evidence."""

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
        """Return the number of devices' worth of runs above a bucket, without the bucket itself."""
        runs: float = sum(self.buckets.values())
        marked = sum(count for other, count in self.buckets.items() if other > bucket)
        # not every device that reported has a value
        worth = min(self.devices, runs)
        return Counts(worth * marked / runs, worth)


class Beyond(NamedTuple):
    """Numbers of devices in both groups beyond a quantile of the old values."""

    what: str
    """The quantile, for people."""
    new: Counts
    """Devices beyond the tolerated change of the quantile."""
    old: Counts
    is_above: bool = True

    def evidence(self, more: int = 0) -> float:
        """Return the log e-value with ``more`` further new devices above all others."""
        marked = self.new.marked + (more if self.is_above else 0)
        return exceeds_other(Counts(marked, self.new.total + more), self.old, DRIFT_BETS)


class Moved(NamedTuple):
    """Comparison of the values of two groups."""

    new: Values
    old: Values
    tests: tuple[Beyond, ...] = ()
    is_alike: bool = True
    """Whether values of calls of similar size were compared; otherwise only bounds were."""

    @property
    def is_known(self) -> bool:
        """Whether both groups have values."""
        return bool(self.new.buckets and self.old.buckets)

    def evidence(self, more: int = 0) -> float:
        """Return the log e-value against the hypothesis that values moved within ``tolerated``.

        ``more`` adds that number of new devices, whose values are above all others.
        """
        return _mean([test.evidence(more) for test in self.tests]) if self.tests else 0.0

    def ratio(self, share: float) -> float:
        """Return the ratio of a quantile, 0 to 1, of the new values to that of the old."""
        return float(GAMMA ** (self.new.quantile(share) - self.old.quantile(share)))


def moved_latency(gate: LatencyGate, new: VersionHealth, old: VersionHealth) -> Moved:
    """Compare the times of the runs of two groups."""
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
    """Compare the output sizes of the runs of two groups."""
    mine, usual = Values(new.output_bytes, new.devices), Values(old.output_bytes, old.devices)
    moved = Moved(mine, usual)
    if not (gate.enabled and moved.is_known):
        return moved
    return Moved(mine, usual, _changed(mine, usual, gate.tolerated))


def _matched(new: Values, old: Values, least: int) -> tuple[Values, Values]:
    """Return the times of both versions as if both had calls of the same sizes.

    Runs of calls of a size that only one version has are left out. The old runs get the weights of
    the new sizes (direct standardisation), and count as Kish's effective number of runs.
    """
    mine, usual = _by_call(new.buckets, least), _by_call(old.buckets, least)
    pairs = [(mine[size], usual[size]) for size in mine.keys() & usual.keys()]
    return _standardised(pairs, new.devices, old.devices)


def _bounded(new: Values, old: Values, least: int) -> tuple[Values, Values]:
    """Return times of which the new are no longer than the old, if no calls have a common size.

    That holds for a version that is as fast as the old one. A call costs something besides its
    runs, so a run in a larger call takes no longer. A call of fewer runs takes no longer in total.
    Each new size is compared with the nearest old size, by run or by call.
    """
    mine, usual = _by_call(new.buckets, least), _by_call(old.buckets, least)
    pairs = []
    for size, times in mine.items():
        near = min(usual, key=lambda candidate: (abs(candidate - size), candidate))
        if size > near:
            pairs.append((times, usual[near]))
        else:
            # a size stands for calls of 2**size to 2**(size + 1) - 1 runs
            pairs.append((_shifted(times, size), _shifted(usual[near], near + 1)))
    return _standardised(pairs, new.devices, old.devices)


def _shifted(buckets: Mapping[int, float], size: int) -> dict[int, float]:
    # rounding shifts equal sizes equally; for unequal sizes half a bucket does not matter
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
    """Return tests of the hypothesis that values grew at most by the factor ``tolerated``."""
    shift = _buckets(tolerated)
    return tuple(_larger(new, old, share, shift) for share in SLOWER)


def _changed(new: Values, old: Values, tolerated: float) -> tuple[Beyond, ...]:
    """Return tests of the hypothesis that values grew or shrank at most by that factor."""
    shift = _buckets(tolerated)
    tests = []
    for share in _SIZES:
        bucket = old.quantile(share)
        tests.append(_larger(new, old, share, shift))
        # without the bucket itself below: a value that stays is no change
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
    # one more, because values in neighbouring buckets may be nearly two widths apart
    return math.ceil(math.log(factor) / math.log(GAMMA)) + 1


def _mean(logarithms: list[float]) -> float:
    return float(np.logaddexp.reduce(np.array(logarithms))) - math.log(len(logarithms))
