"""The gates of a release as they stand in its YAML: what is tolerated, and the error rate."""

from typing import Annotated

from pydantic import Field, PlainSerializer, StrictBool

from walle_stream.spec.scalars import DurationMs
from walle_stream.spec.strict import Strict

# written back as it is read
Duration = Annotated[DurationMs, PlainSerializer(lambda value: f"{value}ms")]
"""Milliseconds, as ``10m`` in YAML."""
_Tolerance = Annotated[float, Field(gt=1, le=1_000)]


class ShareGate(Strict):
    """Devices to which something bad happened."""

    tolerated: Annotated[float, Field(gt=0, le=0.5)] = 0.001
    """Share of the devices, 0 to 0.5, to which it may happen, whatever the version before does."""


class DriftGate(Strict):
    """How values of the runs moved away from the previous version's."""

    tolerated: _Tolerance
    """By which factor they may."""
    enabled: StrictBool = True


class LatencyGate(DriftGate):
    """How times of the runs grew."""

    tolerated: _Tolerance = 1.1
    floor: Duration = 1
    """Shorter runs count as so long: what is lost among the costs of a call is no change."""


class OutputGate(DriftGate):
    """How sizes of the runs' output changed."""

    tolerated: _Tolerance = 2.0


class Gates(Strict):
    """When a release is stopped."""

    error_rate: Annotated[float, Field(ge=1e-6, le=0.2)] = 0.05
    """Chance that a version which keeps what is tolerated is stopped, all gates together,
    however often they look; see ``release.gates`` for how far that is proven."""
    failures: ShareGate = ShareGate()
    """Devices with a failed run."""
    crashes: ShareGate = ShareGate()
    """Devices where the version ended a VM or a process, or was quarantined."""
    latency: LatencyGate = LatencyGate()
    """Slower runs."""
    output: OutputGate = OutputGate()
    """Larger or smaller output of runs."""
