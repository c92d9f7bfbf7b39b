"""Chaos campaigns: ``kill -9`` a pipeline again and again, then compare every byte.

One *life* has a fresh data directory. The pipeline is started and killed until a run ends by
itself. Then its features and its canonical state must equal those of an unkilled run, byte for
byte. ``plan`` describes a campaign, and ``aim`` draws the kills from the seed. A ``Target``
(``targets``) starts a pipeline and names its processes by role. ``campaign`` runs the lives, and
can itself be killed and resumed. ``report`` is the format of the results.

Run it with ``python -m walle_stream.testing.chaos``; see docs/testing.md.
"""

from walle_stream.testing.chaos.campaign import Campaign
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.report import FaultReport, PartReport, render

__all__ = ["Campaign", "ChaosPlan", "FaultReport", "PartPlan", "PartReport", "render"]
