"""Kinds of devices for simulations, as YAML of the kind ``DeviceKinds``.

A script sees of a device its ``ctx.config`` and the contents of its events, so a kind has both. The
other fields (app, OS, model) are for people and reports.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from walle_stream.spec.models import Metadata, SequenceSpec
from walle_stream.spec.paths import PathField
from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict, refuse_twice

SPEEDS: Final = {"": 1.0, "low": 0.25, "middle": 0.5, "high": 1.0}
"""Default share of this machine's speed, by performance class."""

_MIB: Final = 2**20
_Text = Annotated[str, Field(max_length=128)]
_Share = Annotated[float, Field(ge=0, le=1)]


class DeviceKind(Strict):
    """One kind of device."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    performance: Literal["", "low", "middle", "high"] = ""
    speed: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None,
        description="Factor for the package's limits of wall time and steps; by default 0.25 "
        "for low, 0.5 for middle, 1 otherwise.",
    )
    steps: Annotated[int, Field(ge=1, le=10**12)] | None = Field(
        default=None, description="Most steps of a run, whatever the package says."
    )
    memory: Annotated[SizeBytes, Field(ge=16 * _MIB)] = Field(
        default=512 * _MIB, description="Memory for the task, besides the VM's own."
    )
    interpreter: _Text = Field(
        default="", description="Interpreter such as cpython-314; this machine's by default."
    )
    app: _Text = ""
    app_version: _Text = ""
    os: _Text = ""
    os_version: _Text = ""
    model: _Text = ""
    config: dict[str, Any] = Field(
        default={}, description="ctx.config of such devices; it overrides the package's."
    )
    events: PathField | None = Field(
        default=None, description="Recorded events of such devices; default: those for all kinds."
    )

    @property
    def scale(self) -> float:
        """Share of this machine's speed."""
        return SPEEDS[self.performance] if self.speed is None else self.speed


class Tolerances(Strict):
    """Tolerated differences from the previous version."""

    failure_rate: _Share = Field(
        default=0.0,
        description="A kind fails above this share of failed runs, unless the previous version "
        "fails as often.",
    )
    drift: _Share = Field(
        default=1.0,
        description="A kind fails above this share of runs whose features differ from before.",
    )


class DeviceKindsSpec(Strict):
    """All kinds of a fleet."""

    time_limit: DurationMs = Field(
        default=60_000, ge=1_000, description="Limit for one kind, both versions together."
    )
    tolerances: Tolerances = Tolerances()
    sequence: SequenceSpec = SequenceSpec()
    kinds: Annotated[tuple[DeviceKind, ...], Field(min_length=1, max_length=200)]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        refuse_twice("kinds", [kind.name for kind in self.kinds])
        return self


class DeviceKinds(Strict):
    """A document of the kind ``DeviceKinds``."""

    api_version: str
    kind: Literal["DeviceKinds"]
    metadata: Metadata
    spec: DeviceKindsSpec
