"""Draws what is killed next, and when.

A shot follows from the seed and its own number alone, so a campaign that was
resumed goes on as one that never stopped would have.
"""

import random
from collections.abc import Sequence

import msgspec

from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.targets import Role

_VISITED_ONCE = "close.before"


class Shot(msgspec.Struct, frozen=True):
    """One kill to come."""

    role: str
    """Which process, by its role."""
    point: str = ""
    """Named crash point to die at; empty for a random moment."""
    visit: int = 0
    """Which visit of the point, from 1."""
    delay_s: float = 0.0
    """For a random moment: how long to wait first."""


def next_shot(plan: ChaosPlan, number: int, roles: Sequence[Role], *, is_at_start: bool) -> Shot:
    """Draw a shot.

    Args:
        plan: The campaign's.
        number: How many were drawn before.
        roles: Whom it may hit; not empty.
        is_at_start: Whether the run is about to start: crash points are armed there only.
    """
    # seeded for repeatability, not for secrecy
    chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311
    is_aimed = chance.random() < plan.aimed_ratio
    armed = [role for role in roles if role.points]
    if is_at_start and is_aimed and armed:
        role = _choose(chance, armed)
        point = chance.choice(role.points)
        visit = 1 if point == _VISITED_ONCE else chance.randint(1, plan.max_visits)
        return Shot(role.name, point, visit)
    role = _choose(chance, roles)
    return Shot(role.name, delay_s=chance.expovariate(1.0 / plan.mean_delay_s))


def _choose(chance: random.Random, roles: Sequence[Role]) -> Role:
    return chance.choices(roles, [role.weight for role in roles])[0]
