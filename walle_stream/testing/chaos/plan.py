"""What a campaign is to do: plain values that are kept with its progress."""

import msgspec


class PartPlan(msgspec.Struct, frozen=True):
    """A share of the campaign: one target."""

    target: str
    """Its name, or a dotted path ``package.module:NAME`` (``targets.find_target``)."""
    kills: int
    """Kills that must count, ≥ 1."""
    quotas: dict[str, int] = {}
    """How many of them by role, for every role that is to be hit; empty for as the target's
    weights have it. The sum is ``kills``."""


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to kill and how often."""

    pipeline: str
    """File, or the name of a shipped one."""
    overrides: tuple[str, ...] = ()
    """Like ``--set``, each ``a.b=c``."""
    parts: tuple[PartPlan, ...]
    """One after another."""
    seed: int = 1
    """Every choice follows from it and from the number of the shot."""
    hosts: int = 2
    """Device hosts of a run."""
    aimed_ratio: float = 0.5
    """Share of the shots at a named crash point, 0-1; the others come at random moments."""
    mean_delay_s: float = 0.25
    """Mean time from the first sign of life, or from the last kill, to one at a random moment."""
    max_visits: int = 60
    """Shots at a crash point hit one of its first visits, at most this number."""

    @property
    def kills(self) -> int:
        """Kills of all parts."""
        return sum(part.kills for part in self.parts)
