"""Plan of a campaign: plain values that are stored with its progress."""

import msgspec


class PartPlan(msgspec.Struct, frozen=True):
    """A part of the campaign, with one target."""

    target: str
    """Name of the target, or a dotted path ``package.module:NAME`` (``targets.find_target``)."""
    kills: int
    """Number of kills that must count, ≥ 1."""
    quotas: dict[str, int] = {}
    """Number of kills by role, for every role to hit; the sum is ``kills``. Empty: the target's
    weights decide."""


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Targets, number and kinds of kills."""

    pipeline: str
    """File of the pipeline, or the name of a shipped pipeline."""
    overrides: tuple[str, ...] = ()
    """Overrides like ``--set``, each ``a.b=c``."""
    parts: tuple[PartPlan, ...]
    """Parts, which run one after another."""
    seed: int = 1
    """Every choice depends on the seed and the number of the shot alone."""
    hosts: int = 2
    """Device hosts of a run."""
    aimed_ratio: float = 0.5
    """Share of the shots at a named crash point, 0-1; the others come at random moments."""
    mean_delay_s: float = 0.25
    """Mean time from the first sign of life, or from the last kill, to a random kill."""
    max_visits: int = 60
    """Largest number of the visit at which a crash point fires."""

    @property
    def kills(self) -> int:
        """Kills of all parts."""
        return sum(part.kills for part in self.parts)
