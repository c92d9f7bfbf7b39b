"""Health of a release's groups, as tests say it."""

from types import MappingProxyType

from walle_deploy.model.health import (
    LEVELS,
    GroupHealth,
    GroupWindow,
    ReleaseHealth,
    VersionHealth,
)

TASK = "shop/ipv"
NOTHING = MappingProxyType({})
BAD = ("failing_devices", "crashing_devices")


def window(number=1, at_risk=0, reached=0, crashed=0):
    """One in which devices fail for the first time, and no further time."""
    zeros = (0,) * (len(LEVELS) - 1)
    all_at_risk = (at_risk,) * len(LEVELS)
    return GroupWindow(number, all_at_risk, (reached, *zeros), all_at_risk, (crashed, *zeros))


def group(version, windows=(), **fields):
    """Of one version; all fields are since the offer and since the step."""
    health = VersionHealth(task=TASK, version=version, **fields)
    return GroupHealth(release=health, step=health, windows=tuple(windows))


def both(new=None, old=None, number=1, before=(NOTHING, NOTHING)):
    """Two groups of which failing devices failed in one window.

    Args:
        new: Fields of ``VersionHealth`` of v2.
        old: The same of v1.
        number: Of the window.
        before: Fields of both before that window.
    """
    made = []
    for version, fields, then in zip(("v2", "v1"), (new or {}, old or {}), before, strict=True):
        devices = fields.get("devices", 0)
        more = [fields.get(each, 0) - then.get(each, 0) for each in BAD]
        seen = [window(number, devices, *(max(0, each) for each in more))] if devices else []
        made.append(group(version, seen, **fields))
    return ReleaseHealth(new=made[0], control=made[1])
