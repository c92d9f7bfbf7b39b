"""Draws the target and place of the next kill, from the seed and the kill's number alone."""

import random
from typing import Final

import msgspec

from walle_deploy.testing.chaos.plan import WorldPlan

_WEIGHTS: Final = {"host": 4.0, "service": 3.0, "operator": 4.0, "files": 1.0}
POINTS: Final = {
    "host": (
        "pull.after",
        "package.part",
        "package.stored",
        "install.before",
        "install.after",
        "commit.before",
        "commit.after",
    ),
    "service": (
        "turn.before",
        "change.before",
        "change.after",
        "reports.before",
        "reports.after",
    ),
    "operator": (
        "publish.built",
        "publish.stored",
        "sign.bins",
        "sign.snapshot",
        "publish.signed",
        "change.before",
        "change.after",
    ),
    "files": (),
}
"""Crash points by role."""

_ONCE: Final = frozenset({"package.part", *POINTS["operator"]})
_VISITS_MAX: Final = 6


class Shot(msgspec.Struct, frozen=True):
    """One planned kill."""

    role: str
    pick: int
    """Any number; it selects one of the role's processes."""
    delay_s: float
    """Pause before the kill."""
    crash: str = ""
    """``POINT:VISIT``: crash point at which the restarted process, or the next command, kills
    itself; empty for none."""


def next_shot(plan: WorldPlan, number: int) -> Shot:
    """Draw a shot."""
    # seeded for repeatability, not for secrecy
    chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311
    role = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    pick, delay_s = chance.randrange(1_000), chance.expovariate(1.0 / plan.mean_delay_s)
    if not POINTS[role] or chance.random() >= plan.aimed_ratio:
        return Shot(role, pick, delay_s)
    point = chance.choice(POINTS[role])
    visit = 1 if point in _ONCE else chance.randint(1, _VISITS_MAX)
    return Shot(role, pick, delay_s, f"{point}:{visit}")
