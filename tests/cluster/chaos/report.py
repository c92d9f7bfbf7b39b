"""What a campaign reports: the format of the other campaigns, and how long partitions were silent."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tests.cluster.chaos.life import LifeEnd
from tests.cluster.chaos.plan import ClusterPlan, LifePlan
from walle_stream.testing.chaos.report import FaultReport, Mismatch, PartReport

_P95: Final = 0.95


class Silence(msgspec.Struct):
    """The longest time without a feature of some partition, of each fault of a kind."""

    each_s: list[float] = []
    """In the order in which they happened."""
    median_s: float = 0.0
    p95_s: float = 0.0
    max_s: float = 0.0

    def add(self, silence_s: float) -> None:
        """Take one more."""
        self.each_s.append(round(silence_s, 2))
        ordered = sorted(self.each_s)
        self.median_s, self.p95_s = _share(ordered, 0.5), _share(ordered, _P95)
        self.max_s = ordered[-1]


class ClusterPart(PartReport, kw_only=True):
    """The lives with one number of standbys."""

    silences: dict[str, Silence] = msgspec.field(default_factory=dict)
    """By fault."""
    features: int = 0
    """That were compared."""
    refused: int = 0
    """Frames of owners that were cut off, which the cloud side refused."""
    dropped: int = 0
    """Features that it had already."""

    def take(self, life: LifePlan, end: LifeEnd) -> None:
        """Count a life."""
        self.lives += 1
        self.runs += 2
        for each in end.suffered:
            self.count(each.fault, "under a live feed")
            self.silences.setdefault(each.fault, Silence()).add(each.silence_s)
        self.features += end.features
        self.refused += end.refused
        self.dropped += end.dropped
        if end.differing:
            self.mismatches.append(Mismatch(f"life-{life.number}", end.differing))


class ClusterReport(FaultReport, kw_only=True):
    """A campaign over clusters, as far as it is."""

    plan: ClusterPlan
    parts: list[ClusterPart]  # type: ignore[assignment]
    lives: int = 0
    """Lives that are over."""


def render_silences(parts: Iterable[ClusterPart]) -> str:
    """Return a table for a person."""
    lines = []
    for part in parts:
        lines.append(
            f"{part.target}: {part.features} features compared, {part.refused} frames of former owners "
            f"refused, {part.dropped} features dropped as known; longest silence of a partition in seconds:"
        )
        lines.append(f"  {'fault':<12} {'count':>5} {'median':>7} {'p95':>7} {'max':>7}")
        for fault, found in sorted(part.silences.items()):
            numbers = f"{found.median_s:>7.1f} {found.p95_s:>7.1f} {found.max_s:>7.1f}"
            lines.append(f"  {fault:<12} {len(found.each_s):>5} {numbers}")
    return "\n".join(lines)


def _share(ordered: list[float], share: float) -> float:
    # the nearest rank
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
