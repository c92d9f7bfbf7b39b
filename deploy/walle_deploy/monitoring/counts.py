"""What is counted of one version of one task, and percentiles of it."""

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.devices import EXACT_DEVICES, DeviceSet, device_hash
from walle_stream.wire.reports import CALL_BUCKETS, TaskReport

CLASSES_MAX: Final = 64
"""Classes of errors that are told apart; all others are ``(other)``."""

RELATIVE_ACCURACY: Final = 0.01
"""Of percentiles."""

_OTHER: Final = "(other)"
_NUMBERS: Final = ("runs", "failures", "strikes")
_SETS: Final = ("devices", "failing", "crashing")


class VersionCounts:
    """Counts over some span of time. One thread; merging is associative and commutative."""

    def __init__(self, exact_devices: int = EXACT_DEVICES) -> None:
        """Start with nothing.

        Args:
            exact_devices: Bound of the sets of devices.
        """
        self.runs = 0
        self.failures = 0
        self.strikes = 0
        self.classes: dict[str, int] = {}
        self.latency_us: dict[int, int] = {}
        self.output_bytes: dict[int, int] = {}
        self.devices = DeviceSet(exact_devices)
        self.failing = DeviceSet(exact_devices)
        self.crashing = DeviceSet(exact_devices)

    def add(self, report: TaskReport) -> None:
        """Count a report."""
        devices, failing, crashing = [], [], []
        for each in report.devices:
            hashed = device_hash(each.device_id)
            devices.append(hashed)
            self.runs += each.runs
            if each.failures:
                failing.append(hashed)
                self.failures += sum(each.failures.values())
                self.strikes += each.strikes
                self._add_classes(each.failures)
            if each.crashes:
                crashing.append(hashed)
        self.devices.add(devices)
        self.failing.add(failing)
        self.crashing.add(crashing)
        _add(self.latency_us, report.latency_us)
        _add(self.output_bytes, report.output_bytes)

    def merge(self, other: "VersionCounts") -> None:
        """Add what another worker, or another span of time, counted.

        Args:
            other: Stays as it is.
        """
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _SETS:
            getattr(self, name).merge(getattr(other, name))
        self._add_classes(other.classes)
        _add(self.latency_us, other.latency_us)
        _add(self.output_bytes, other.output_bytes)

    def health(self, task: str, version: str) -> VersionHealth:
        """Return what the gates of a release read.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
        """
        return VersionHealth(
            task=task,
            version=version,
            devices=len(self.devices),
            failing_devices=len(self.failing),
            crashing_devices=len(self.crashing),
            runs=self.runs,
            failures=self.failures,
            failure_classes=dict(self.classes),
            strikes=self.strikes,
            latency_us=dict(self.latency_us),
            output_bytes=dict(self.output_bytes),
        )

    def dump(self) -> bytes:
        """Return what ``load`` takes."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        plain |= {name: getattr(self, name).dump() for name in _SETS}
        plain |= {"classes": self.classes, "latency": self.latency_us, "output": self.output_bytes}
        return msgspec.msgpack.encode(plain)

    @classmethod
    def load(cls, dumped: bytes) -> Self:
        """Return counts that were dumped.

        Args:
            dumped: Trusted, as it comes from the own store.
        """
        plain = msgspec.msgpack.decode(dumped, strict=False)
        counts = cls()
        for name in _NUMBERS:
            setattr(counts, name, plain[name])
        for name in _SETS:
            setattr(counts, name, DeviceSet.load(plain[name]))
        counts.classes = plain["classes"]
        counts.latency_us, counts.output_bytes = plain["latency"], plain["output"]
        return counts

    def _add_classes(self, counts: Mapping[str, int]) -> None:
        own = self.classes
        for name, count in counts.items():
            key = name if name in own or len(own) < CLASSES_MAX else _OTHER
            own[key] = own.get(key, 0) + count


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return a percentile of bucket counts, at most 1 % off; None where nothing was counted.

    Args:
        buckets: Such as ``VersionHealth.latency_us``; the unit is theirs.
        share: 0 to 1: 0.99 for the 99th.
    """
    # our buckets are DDSketch's: a value goes back into the bucket that it is the middle of
    from ddsketch import DDSketch  # noqa: PLC0415 - of the extra `deploy`
    from ddsketch.mapping import LogarithmicMapping  # noqa: PLC0415 - same

    mapping = LogarithmicMapping(RELATIVE_ACCURACY)
    sketch = DDSketch(RELATIVE_ACCURACY)
    for place, count in buckets.items():
        if count > 0:
            # runs are told apart by the size of their calls, too
            sketch.add(mapping.value(place % CALL_BUCKETS), count)
    found: float | None = sketch.get_quantile_value(share)
    return found


def _add(own: dict[int, int], counts: Mapping[int, int]) -> None:
    for place, count in counts.items():
        own[place] = own.get(place, 0) + count
