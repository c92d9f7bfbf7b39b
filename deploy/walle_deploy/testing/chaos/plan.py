"""The plan of a campaign over the release platform: plain values."""

from typing import Final

import msgspec

TASK: Final = "shop/ipv"
"""The task that is released."""

OWN_TASK: Final = "shop-ipv"
"""The definition's task, which no release touches."""


class WorldPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a world, and the rate of its kills."""

    seed: int = 1
    hosts: int = 3
    devices: int = 60
    """Devices of all hosts together."""
    services: int = 2
    """Release services over one store."""
    sessions: int = 30
    """Visits of each device; the events must last longer than the kills."""
    rate: int = 1_000
    """Events per second of each host, until the world rests."""
    versions: int = 8
    """Number of tagged versions; every third one fails on some devices."""
    kills: int = 20
    """Kills of one life."""
    mean_delay_s: float = 0.8
    """Mean time between kills."""
    operator_pause_s: float = 0.6
    """Mean time between two commands of an operator."""
    aimed_ratio: float = 0.6
    """Share of the kills at a named crash point."""


def version_name(number: int) -> str:
    """Return the name of a version.

    Args:
        number: Number from 1, the first version of all devices.
    """
    return f"v{number}"


def version_number(name: str) -> int:
    """Return the number of a version."""
    return int(name[1:])


def is_bad(number: int) -> bool:
    """Return whether a version fails on some devices.

    Args:
        number: Number from 1.
    """
    return number % 3 == 0
