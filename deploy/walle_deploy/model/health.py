"""Health of a task version on the devices that have it.

Monitoring makes it from reports of devices; the gates of a release read it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

LEVELS: Final = (1, 2, 3, 8, 32)
"""Numbers of failed runs, or crashes, of a device that gates look at. A device that always fails
soon reaches the high levels, however long others took for a few failures.

Counts begin with the device's first report in the release, in whichever group. A device that moves
from ``control`` to ``new`` keeps its number. With a new count, devices that fail under any version
would seem to fail afresh in ``new``, but long ago in ``control``."""


class VersionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of one version of one task, over all devices that reported it."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    devices: int = 0
    """Devices that reported a run of the version."""
    failing_devices: int = 0
    """Of these, devices with a failed run."""
    crashing_devices: int = 0
    """Of these, devices where the version ended a VM or a process, or was quarantined."""
    runs: int = 0
    failures: int = 0
    failure_classes: Mapping[str, int] = {}
    """Failed runs by the error's class, such as ``KeyError`` or ``RunStopped``."""
    device_minutes: int = 0
    """Minutes in which a device ran, over all devices."""
    last_ms: int = 0
    """Time of the last report in epoch ms; 0 without any."""
    latency_us: Mapping[int, float] = {}
    """Devices by bucket of the time of runs in microseconds. Bucket ``i`` holds values in
    (GAMMA**(i-1), GAMMA**i], with GAMMA for a relative accuracy of 1 %. Multiples of
    ``CALL_BUCKETS`` add the size of the run's VM call, see ``wire.buckets.timed_bucket``. A device
    weighs one in each minute, or in each step for a group of a release, however many runs it
    reports."""
    output_bytes: Mapping[int, float] = {}
    """The same by bucket of the bytes that runs emitted, plus 1."""


GAMMA = (1 + 0.01) / (1 - 0.01)
"""Ratio of a bucket's bounds; a bucket tells its values within a relative error of 1 %."""


class GroupWindow(msgspec.Struct, frozen=True):
    """One group of one release in one window.

    For each level of ``LEVELS``: the number of devices that ran in the window and had been below
    the level, and how many of these reached it there. A device counts once per window in the group
    that its receipt names, or in both if it has receipts of both.
    """

    number: int
    """See ``ReadTransaction.window_at``."""
    failures_at_risk: tuple[int, ...]
    failures_reached: tuple[int, ...]
    crashes_at_risk: tuple[int, ...]
    """The same for crashes."""
    crashes_reached: tuple[int, ...]


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One group of one release; only devices with a valid receipt count."""

    release: VersionHealth
    """Health since the release was offered. For ``new`` it includes the devices of the beta, which
    are in no group: the test of the tolerated share covers all devices with the version."""
    step: VersionHealth
    """Health since the step began, of the group's own devices; in a beta of all devices."""
    windows: tuple[GroupWindow, ...] = ()
    """Closed windows after the requested one, the oldest first. A window in which no device of the
    group ran may be missing."""


class ReleaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Both groups of a release, read at one moment."""

    new: GroupHealth
    control: GroupHealth
    """Group with the previous version; all zeros without one."""


class ReleaseHealthQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Argument of ``release_health(query) -> ReleaseHealth`` of ``release.ports.HealthSource``."""

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    before: str
    """Version of the group ``control``; empty for none."""
    step_ms: int
    """Start of the step in epoch ms; unchanged until the next step."""
    is_beta: bool = False
    """Whether the step is one of named devices, which are in no group."""
    after: int = -1
    """Number of the last window that the caller knows."""
