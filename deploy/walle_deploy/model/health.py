"""How a version of a task does on the devices that have it.

Made by monitoring out of what devices report, read by the gates of a release.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

LEVELS: Final = (1, 2, 3, 8, 32)
"""Numbers of failed runs (or of crashes) of a device that gates look at. A device that fails
always soon has many, however long the others took to have a few.

They are counted since the device was first counted in the release, in whichever group: one that
moves from ``control`` to ``new`` takes its number along. Were it to begin anew, devices that fail
under any version would fail afresh in ``new``, and have done so long ago in ``control``."""


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
    device_minutes: int = 0
    """Minutes in which a device ran, over all devices."""
    last_ms: int = 0
    """When a device reported last, epoch milliseconds; 0 for never."""
    latency_us: Mapping[int, float] = {}
    """Devices by bucket of the time of runs in microseconds: bucket ``i`` holds values in
    (GAMMA**(i-1), GAMMA**i], with GAMMA of a relative accuracy of 1 %. Above it stands how
    large the call was that they were made in, see ``wire.buckets.timed_bucket``. A device weighs
    one in each minute, in a group of a release in each step, however many runs it says it had."""
    output_bytes: Mapping[int, float] = {}
    """The same by bucket of the bytes that runs emitted, plus 1."""


GAMMA = (1 + 0.01) / (1 - 0.01)
"""Ratio of a bucket's bounds: values within are told with a relative error of 1 % at most."""


class GroupWindow(msgspec.Struct, frozen=True):
    """One group of one release in one window.

    By level of ``LEVELS``: how many devices ran in the window and had fewer failed runs than the
    level before it, and how many of these reached it within. A device counts in the group that
    its receipt names, once per window; where it has receipts of both, in each.
    """

    number: int
    """See ``ReadTransaction.window_at``."""
    failures_at_risk: tuple[int, ...]
    failures_reached: tuple[int, ...]
    crashes_at_risk: tuple[int, ...]
    """The same of crashes."""
    crashes_reached: tuple[int, ...]


class GroupHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One group of one release; only devices with a valid receipt count."""

    release: VersionHealth
    """Since the release was offered. Of ``new`` with the beta's devices, which are in no group:
    the test against what is tolerated is of all devices that have the version."""
    step: VersionHealth
    """Since the step began, of the group's own devices alone; in a beta of all devices."""
    windows: tuple[GroupWindow, ...] = ()
    """That are closed, after the one that was asked for, the oldest first; one in which no device
    of the group ran may be left out."""


class ReleaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Both groups of a release, read at one moment."""

    new: GroupHealth
    control: GroupHealth
    """Of the version before; zeros where there is none."""


class ReleaseHealthQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What ``release_health(query) -> ReleaseHealth`` of ``release.ports.HealthSource`` gets."""

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    before: str
    """Of the group ``control``; empty for none."""
    step_ms: int
    """When the step began, epoch milliseconds; the same until the next one begins."""
    is_beta: bool = False
    """Whether the step is one of named devices, which are in no group."""
    after: int = -1
    """Number of the last window that is known."""
