"""The kind ``Release``: what a release is to do, as pydantic models.

YAML keys are camelCase, unknown keys are errors. Place in the data flow: ``loading`` fills
them, ``state`` keeps them with the release.
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
    """Names a release."""

    name: Name
    """Its id: a name is used once."""


class ReleaseSpec(Strict):
    """What is released, to whom, how."""

    task: str
    version: _Text
    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)] = 0
    policy: Policy = Policy()
    """Who may get it; nothing for everybody."""
    simulation: SimulationStep | None = None
    beta: BetaStep | None = None
    gray: Annotated[tuple[GrayStep, ...], Field(max_length=50)] = tuple(
        GrayStep(percent=percent) for percent in (1.0, 5.0, 20.0, 50.0, 100.0)
    )
    hold_out: Annotated[float, Field(ge=0, le=50)] = 1.0
    """Percent of the devices that keep the version before, where there is one, in gray and full,
    so that there is always something to compare with; they get the version when it is done."""
    full: Step = Step()
    """Everybody whom the policy lets in; watched until it is over."""
    gates: Gates = Gates()
    on_stop: Literal["rollback", "pause"] = "rollback"
    """What a gate does that stops the release."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            ref = TaskRef.parse(f"{self.task}@{self.version}")
        except RefNotFoundError as error:
            raise ValueError(f"task: {error.message}") from None
        if ref.name != self.task:
            raise ValueError(
                f"task: {self.task!r} has a version of its own: write it under version"
            )
        try:
            Policy.of(self.policy.plain)
        except SpecFileError as error:
            raise ValueError(f"policy: {error.message}") from None
        if 0 < self.hold_out < LEAST_PERCENT:
            raise ValueError(f"holdOut: expected 0, or at least {LEAST_PERCENT:g}")
        percents = [step.percent for step in self.gray]
        if any(later <= earlier for earlier, later in pairwise(percents)):
            raise ValueError("gray: each step must have more percent than the one before")
        return self


class Release(Strict):
    """One release of one version of one task."""

    api_version: Literal["walle/v1"]
    kind: Literal["Release"]
    metadata: ReleaseMetadata
    spec: ReleaseSpec
