"""Chaos: ``kill -9`` a pipeline again and again, then compare every byte.

One *life* is a fresh data directory: the pipeline is started and killed until a
run ends by itself; then its features and its canonical state must be the bytes
of a run that nobody killed. ``plan`` says what to do, ``aim`` draws the kills
from the seed, a ``Target`` (``targets``) starts a pipeline and names its
processes by role, ``campaign`` lives the lives and can be killed and resumed
itself, ``report`` is the one format of what came out.

Run it with ``python -m walle_stream.testing.chaos``; see docs/testing.md.
"""

from walle_stream.testing.chaos.campaign import Campaign
from walle_stream.testing.chaos.plan import ChaosPlan, PartPlan
from walle_stream.testing.chaos.report import FaultReport, PartReport, render

__all__ = ["Campaign", "ChaosPlan", "FaultReport", "PartPlan", "PartReport", "render"]
