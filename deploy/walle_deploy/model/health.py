"""How a version of a task does on the devices that have it.

Made by monitoring out of what devices report, read by the gates of a release.
"""

from collections.abc import Mapping

import msgspec


class VersionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one task, over all devices that reported it."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    devices: int = 0
    """That reported a run of it."""
    failing_devices: int = 0
    """Of these, devices with a failed run."""
    crashing_devices: int = 0
    """Of these, devices where it ended a VM or a process, or was quarantined."""
    runs: int = 0
    failures: int = 0
    failure_classes: Mapping[str, int] = {}
    """Failed runs by the error's class, such as ``KeyError`` or ``RunStopped``."""
    strikes: int = 0
    """Runs that had to be stopped."""
    latency_us: Mapping[int, int] = {}
    """Runs by bucket of their time in microseconds: bucket ``i`` holds values in
    (GAMMA**(i-1), GAMMA**i], with GAMMA of a relative accuracy of 1 %. Above it stands how
    large the call was that they were made in, see ``wire.reports.timed_bucket``."""
    output_bytes: Mapping[int, int] = {}
    """Runs by bucket of the bytes that they emitted, plus 1; the same buckets."""


GAMMA = (1 + 0.01) / (1 - 0.01)
"""Ratio of a bucket's bounds: values within are told with a relative error of 1 % at most."""
