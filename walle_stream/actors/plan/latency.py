"""Latencies in buckets: constant memory, cheap to add, mergeable.

Wall-clock measurements only; they reach no feature and no state row.
"""

from collections.abc import Iterable

import msgspec


class LatencyMs(msgspec.Struct, frozen=True):
    """Quantiles of a latency, milliseconds; null without samples."""

    p50: float | None
    p99: float | None


class Latencies:
    """Latency samples in a fixed number of buckets, 0.01 ms to 100 s.

    Not thread-safe: each partition host has its own, merged at the end.
    """

    __slots__ = ("buckets", "count", "sum_ms")

    def __init__(self) -> None:
        """Start without samples."""
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.sum_ms = 0.0

    @classmethod
    def of(cls, others: Iterable["Latencies"]) -> "Latencies":
        """Return the samples of several collections."""
        merged = cls()
        for other in others:
            merged.merge(other)
        return merged

    def add(self, latency_ms: float, times: int = 1) -> None:
        """Count a latency ≥ 0 ms for a number of samples."""
        # two significant digits: a bucket is at most 10 % wide
        bucket = _bucket_of(latency_ms)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.count += times
        self.sum_ms += latency_ms * times

    def merge(self, other: "Latencies") -> None:
        """Add the samples of another collection."""
        for bucket, times in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.count += other.count
        self.sum_ms += other.sum_ms

    def copy(self) -> "Latencies":
        """Return a copy; any thread, while another one adds."""
        copied = Latencies()
        copied.buckets = dict(self.buckets)
        copied.count, copied.sum_ms = self.count, self.sum_ms
        return copied

    def count_below(self, latency_ms: float) -> int:
        """Return the number of samples at or below a latency in milliseconds."""
        return sum(
            times for bucket, times in self.buckets.items() if _value_of(bucket) <= latency_ms
        )

    def quantile(self, ratio: float) -> float | None:
        """Return a quantile (0–1) in milliseconds, None when empty."""
        if not self.count:
            return None
        rank = ratio * (self.count - 1)
        below = 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below > rank:
                return _value_of(bucket)
        return _value_of(max(self.buckets))

    def report(self) -> LatencyMs:
        """Return the quantiles for a run's report."""
        return LatencyMs(self.quantile(0.5), self.quantile(0.99))


def _bucket_of(latency_ms: float) -> int:
    hundredths = max(int(latency_ms * 100), 1)
    exponent = max(len(str(hundredths)) - 2, 0)
    step: int = 10**exponent
    return exponent * 100 + hundredths // step


def _value_of(bucket: int) -> float:
    exponent, digits = divmod(bucket, 100)
    return float(digits * 10**exponent) / 100
