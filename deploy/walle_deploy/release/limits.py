"""The gates of a release in its YAML: the tolerated values and the error rate."""

from typing import Annotated

from pydantic import Field, PlainSerializer, StrictBool

from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict

# serialised as YAML accepts it
Duration = Annotated[DurationMs, PlainSerializer(lambda value: f"{value}ms")]
"""Milliseconds, as ``10m`` in YAML."""
_Tolerance = Annotated[float, Field(gt=1, le=1_000)]


class ShareGate(Strict):
    """Limit on the share of affected devices."""

    tolerated: Annotated[float, Field(gt=0, le=0.5)] = 0.001
    """Share of devices, 0 to 0.5, that may be affected, whatever the previous version does."""


class DriftGate(Strict):
    """Limit on the change of runs' values against the previous version."""

    tolerated: _Tolerance
    """Factor by which the values may change."""
    enabled: StrictBool = True


class LatencyGate(DriftGate):
    """Limit on the growth of runs' times."""

    tolerated: _Tolerance = 1.1
    floor: Duration = 1
    """A shorter run counts as this long: differences below the cost of a call are no change."""


class OutputGate(DriftGate):
    """Limit on the change of the sizes of runs' output."""

    tolerated: _Tolerance = 2.0


class Gates(Strict):
    """Conditions that stop a release."""

    error_rate: Annotated[float, Field(ge=1e-6, le=0.2)] = 0.05
    """Chance that a version within the tolerated limits is stopped, for all gates and all looks
    together; ``release.gates`` says how far this is proven."""
    failures: ShareGate = ShareGate()
    """Devices with a failed run."""
    crashes: ShareGate = ShareGate()
    """Devices where the version ended a VM or a process, or was quarantined."""
    latency: LatencyGate = LatencyGate()
    """Slower runs."""
    output: OutputGate = OutputGate()
    """Larger or smaller output of runs."""
