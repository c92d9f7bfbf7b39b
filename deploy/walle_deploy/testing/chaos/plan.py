"""What a campaign over the release platform is to do: plain values."""

from typing import Final

import msgspec

TASK: Final = "shop/ipv"
"""What is released."""

OWN_TASK: Final = "shop-ipv"
"""The definition's task, which no release touches."""


class WorldPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large a world is, and how it is killed."""

    seed: int = 1
    hosts: int = 3
    devices: int = 60
    """Of all hosts together."""
    services: int = 2
    """Release services over one store."""
    sessions: int = 30
    """Visits of each device: the events must not end before the kills do."""
    rate: int = 1_000
    """Events a second, of each host, until the world rests."""
    versions: int = 8
    """With a tag; every third one fails on some devices."""
    kills: int = 20
    """Of one life."""
    mean_delay_s: float = 0.8
    """Mean time between kills."""
    operator_pause_s: float = 0.6
    """Mean time between two commands of an operator."""
    aimed_ratio: float = 0.6
    """Share of the kills at a named crash point."""


def version_name(number: int) -> str:
    """Return the name of a version.

    Args:
        number: From 1, which is the one that devices begin with.
    """
    return f"v{number}"


def version_number(name: str) -> int:
    """Return the number of a version."""
    return int(name[1:])


def is_bad(number: int) -> bool:
    """Return whether a version fails on some devices.

    Args:
        number: From 1.
    """
    return number % 3 == 0
