"""Counts of reports and of windows of time, and percentiles of counts."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final, Self

import msgspec

from walle_deploy.model.health import LEVELS
from walle_stream.wire.buckets import CALL_BUCKETS
from walle_stream.wire.reports import DeviceRuns, TaskReport

CLASSES_MAX: Final = 64
"""Number of error classes that are counted apart; all others are ``(other)``."""

RELATIVE_ACCURACY: Final = 0.01
UNIT: Final = 1_000
"""Weight of one device in times and sizes where it counts once."""

type DeviceValues = tuple[Collection[int], Mapping[int, int], Mapping[int, int]]
"""Of one report: hashes of its devices, runs by time bucket, runs by output bucket."""

_MOST: Final = 2**62
"""Largest count, whatever devices claim; the store has 64-bit integers."""
_LEVELS: Final = ("failures_at_risk", "failures_reached", "crashes_at_risk", "crashes_reached")


def _zeros() -> list[int]:
    return [0] * len(LEVELS)


class WindowCounts(msgspec.Struct, array_like=True):
    """Counts of a window that only grow. Merging is associative and commutative."""

    runs: int = 0
    failures: int = 0
    classes: dict[str, int] = {}
    latency_us: dict[int, int] = {}
    """Each weighed device contributes ``UNIT`` in total, see ``add_values``."""
    output_bytes: dict[int, int] = {}
    failures_at_risk: list[int] = msgspec.field(default_factory=_zeros)
    """See ``GroupWindow``, also for the next three."""
    failures_reached: list[int] = msgspec.field(default_factory=_zeros)
    crashes_at_risk: list[int] = msgspec.field(default_factory=_zeros)
    crashes_reached: list[int] = msgspec.field(default_factory=_zeros)
    device_minutes: int = 0

    def merge(self, other: "WindowCounts") -> None:
        """Add counts of another place or time."""
        self.runs = min(self.runs + other.runs, _MOST)
        self.failures = min(self.failures + other.failures, _MOST)
        self.device_minutes += other.device_minutes
        self.add_classes(other.classes)
        _add(self.latency_us, other.latency_us)
        _add(self.output_bytes, other.output_bytes)
        for name in _LEVELS:
            own: list[int] = getattr(self, name)
            own[:] = map(int.__add__, own, getattr(other, name))

    def add_classes(self, counts: Mapping[str, int]) -> None:
        """Add failed runs by the error's class."""
        own = self.classes
        for name, count in counts.items():
            key = name if name in own or len(own) < CLASSES_MAX else "(other)"
            own[key] = min(own.get(key, 0) + count, _MOST)

    def add_values(self, values: Iterable[DeviceValues], fresh: set[int]) -> None:
        """Add times and sizes of each device's first report here, by shares of its runs.

        With a sum of runs, one device that claims millions of runs would outweigh all others.

        ``fresh`` has the devices to weigh; those that are weighed are removed from it.
        """
        for devices, latency_us, output_bytes in values:
            weight = UNIT * len(fresh.intersection(devices))
            fresh.difference_update(devices)
            _add(self.latency_us, _shares(latency_us, weight))
            _add(self.output_bytes, _shares(output_bytes, weight))


class ReportCounts:
    """New counts of one scope, not yet stored."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.counts = WindowCounts()
        self.devices: dict[int, tuple[int, int]] = {}
        """Failed runs and crashes by the device's hash."""
        self.first: dict[int, tuple[int, int]] = {}
        """The same of each device's first report alone."""
        self.values: list[DeviceValues] = []

    @classmethod
    def of(cls, devices: Iterable[DeviceRuns]) -> Self:
        """Return the counts of some devices, without the times and sizes of their runs."""
        total = cls()
        counts, by_device = total.counts, total.devices
        for device in devices:
            failed = sum(device.failures.values())
            counts.runs += device.runs
            if failed:
                counts.failures += failed
                counts.add_classes(device.failures)
            hashed = device_hash(device.device_id)
            failures, crashes = by_device.get(hashed, (0, 0))
            by_device[hashed] = failures + failed, crashes + device.crashes
        total.first = dict(by_device)
        return total

    def add_runs_of(self, report: TaskReport) -> None:
        """Add times and sizes of a report's runs; its devices are the devices of these counts."""
        self.values.append((tuple(self.devices), report.latency_us, report.output_bytes))

    def add(self, other: "ReportCounts") -> None:
        """Add the counts of another report."""
        self.counts.merge(other.counts)
        self.values += other.values
        own = self.devices
        for hashed, (failed, crashed) in other.devices.items():
            failures, crashes = own.get(hashed, (0, 0))
            own[hashed] = failures + failed, crashes + crashed
        self.first = other.first | self.first

    def plus(self, other: "ReportCounts") -> "ReportCounts":
        """Return the sum of both."""
        total = ReportCounts()
        total.add(self)
        total.add(other)
        return total


encode_counts: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(WindowCounts).decode


def merged_counts(parts: Iterable[bytes]) -> WindowCounts:
    """Return the sum of encoded counts of the own store. Empty bytes count as zero."""
    total = WindowCounts()
    for part in parts:
        if part:
            total.merge(_decode(part))
    return total


def active_devices(part: bytes) -> int:
    """Return the number of a group's devices that ran in a window, without constant crashers.

    For an hour's counts the result is the sum over its minutes.
    """
    counts = _decode(part)
    return max(*counts.failures_at_risk, *counts.crashes_at_risk)


def percentile(buckets: Mapping[int, float], share: float) -> float | None:
    """Return a percentile (0 to 1) of bucket counts, at most 1 % off; None without counts."""
    # these buckets are DDSketch's: a bucket's middle value goes back into the same bucket
    from ddsketch import DDSketch  # noqa: PLC0415 - of the extra `deploy`
    from ddsketch.mapping import LogarithmicMapping  # noqa: PLC0415 - same

    mapping = LogarithmicMapping(RELATIVE_ACCURACY)
    sketch = DDSketch(RELATIVE_ACCURACY)
    for bucket, count in buckets.items():
        if count > 0:
            # bucket numbers also tell the size of a run's VM call
            sketch.add(mapping.value(bucket % CALL_BUCKETS), count)
    value: float | None = sketch.get_quantile_value(share)
    return value


def device_hash(device_id: str) -> int:
    """Return a signed 64-bit hash; of a million ids, two collide with a probability of 3e-8."""
    digest = blake2b(device_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _shares(counts: Mapping[int, int], weight: int) -> dict[int, int]:
    total = sum(counts.values())
    if not (weight and total):
        return {}
    return {bucket: round(count * weight / total) for bucket, count in counts.items()}


def _add(own: dict[int, int], counts: Mapping[int, int]) -> None:
    for bucket, count in counts.items():
        own[bucket] = min(own.get(bucket, 0) + count, _MOST)
