"""Random choice of the next kill and its time.

A shot depends only on the seed and its own number, so a resumed campaign continues exactly like an
uninterrupted one.
"""

import random
from collections.abc import Sequence

import msgspec

from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.targets import Role

_VISITED_ONCE = "close.before"


class Shot(msgspec.Struct, frozen=True):
    """A planned kill."""

    role: str
    """Role of the process."""
    point: str = ""
    """Named crash point; empty for a random moment."""
    visit: int = 0
    """Number of the visit of the point, from 1."""
    delay_s: float = 0.0
    """Wait before a kill at a random moment."""


def next_shot(plan: ChaosPlan, number: int, roles: Sequence[Role], *, is_at_start: bool) -> Shot:
    """Draw a shot.

    Args:
        plan: Plan of the campaign.
        number: Number of shots drawn before.
        roles: Roles that the shot may hit; not empty.
        is_at_start: Whether the run is about to start; only then can crash points be armed.
    """
    # needs repeatability, not secrecy
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
