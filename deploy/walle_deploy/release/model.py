"""The kind ``Release``: the definition of a release, as pydantic models.

YAML keys are camelCase, and unknown keys are errors. ``loading`` fills the models; ``state`` keeps
them with the release.
"""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, StrictInt, model_validator

from walle_deploy.model.names import TaskRef
from walle_deploy.policy.model import Policy
from walle_deploy.release.limits import Gates
from walle_deploy.release.steps import (
    LEAST_PERCENT,
    BetaStep,
    GrayStep,
    SimulationStep,
    Step,
)
from walle_stream.errors import RefNotFoundError, SpecFileError
from walle_stream.spec.models import Name
from walle_stream.spec.strict import Strict

_Text = Annotated[str, Field(min_length=1, max_length=256)]


class ReleaseMetadata(Strict):
    """The name of a release."""

    name: Name
    """The release's id; a name can be used only once."""


class ReleaseSpec(Strict):
    """The version to release, its audience, and its steps and gates."""

    task: str
    version: _Text
    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)] = 0
    policy: Policy = Policy()
    """Devices that may get the version; an empty policy admits every device."""
    simulation: SimulationStep | None = None
    beta: BetaStep | None = None
    gray: Annotated[tuple[GrayStep, ...], Field(max_length=50)] = tuple(
        GrayStep(percent=percent) for percent in (1.0, 5.0, 20.0, 50.0, 100.0)
    )
    hold_out: Annotated[float, Field(ge=0, le=50)] = 1.0
    """Percent of the devices that keep the previous version, if any, in gray and full, as a control
    group. They get the version when the release is done."""
    full: Step = Step()
    """The step in which every device that the policy admits may get the version."""
    gates: Gates = Gates()
    on_stop: Literal["rollback", "pause"] = "rollback"
    """Reaction to a gate that stops the release."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            ref = TaskRef.parse(f"{self.task}@{self.version}")
        except RefNotFoundError as error:
            raise ValueError(f"task: {error.message}") from None
        if ref.name != self.task:
            raise ValueError(
                f"task: {self.task!r} contains a version: write the version under version"
            )
        try:
            Policy.of(self.policy.plain)
        except SpecFileError as error:
            raise ValueError(f"policy: {error.message}") from None
        if 0 < self.hold_out < LEAST_PERCENT:
            raise ValueError(f"holdOut: expected 0, or at least {LEAST_PERCENT:g}")
        percents = [step.percent for step in self.gray]
        if any(later <= earlier for earlier, later in pairwise(percents)):
            raise ValueError("gray: each step must have a larger percent than the previous one")
        return self


class Release(Strict):
    """A release of one version of one task."""

    api_version: Literal["walle/v1"]
    kind: Literal["Release"]
    metadata: ReleaseMetadata
    spec: ReleaseSpec
