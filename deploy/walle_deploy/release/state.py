"""Where a release stands, and what devices are offered there: plain values, nothing else."""

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from walle_deploy.model.releases import ActiveRelease
from walle_deploy.policy.model import Policy
from walle_deploy.release.model import Release, ReleaseSpec
from walle_deploy.release.steps import Step

type Stage = Literal[
    "created", "simulation", "beta", "gray", "full", "done", "stopped", "rolled_back", "superseded"
]
"""``stopped`` ended before any device was offered it, ``rolled_back`` afterwards,
``superseded`` by another release of its task."""

OPEN: Final = frozenset({"created", "simulation", "beta", "gray", "full"})
"""Stages in which something is still to come."""

OFFERED: Final = frozenset({"beta", "gray", "full"})
"""Stages in which devices get the version, and the gates look at it."""


class ReleaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release at one moment; changed only by ``machine.advance``."""

    definition: dict[str, object]
    """JSON of the kind ``Release``."""
    previous: str = ""
    """The task's stable version when the release was created; empty for none."""
    compared: str = ""
    """What it is compared with where that is not the stable version: the version of the newest
    release that is done and is still offered, to the devices that its policy lets in."""
    stage: Stage = "created"
    step: int = 0
    """In stage ``gray``: which one, from 0."""
    created_ms: int = 0
    offered_ms: int = 0
    """When the first device was offered it; 0 for not yet."""
    since_ms: int = 0
    """When the stage or step began; a pause is not counted. Of one that ended: its end."""
    step_ms: int = 0
    """When the stage or step began, whatever pauses there were."""
    paused_ms: int | None = None
    """When it was paused; None when it is not."""
    reason: str = ""
    author: str = ""
    """``Operator.person`` of who created it; empty where it needs nobody's approval."""
    is_approved: bool = False
    is_simulated: bool = False
    is_offered: bool = False
    is_withdrawn: bool = False
    """Whether devices that have it, and are given no other version, lose it: it was taken back, or
    replaced, before it was done."""

    @property
    def before(self) -> str:
        """The version that it is compared with; empty for none."""
        return self.compared or self.previous

    @property
    def control_percent(self) -> float:
        """Share of the devices that its policy lets in which keep the version before; 0 for none.

        In a beta it is 0: named devices are no sample of the others.
        """
        has_version = self.before not in {"", self.release.spec.version}
        return 100.0 - self.percent if has_version and self.stage in {"gray", "full"} else 0.0

    @property
    def release(self) -> Release:
        """The definition, checked."""
        return Release.model_validate(self.definition, by_alias=True, by_name=False)

    @property
    def is_unapproved(self) -> bool:
        """Whether it waits for another person before it begins."""
        return bool(self.author) and not self.is_approved

    @property
    def is_open(self) -> bool:
        """Whether something is still to come."""
        return self.stage in OPEN

    @property
    def percent(self) -> float:
        """Share of the devices that may get it now, as far as the policy lets them in.

        What is done is all of these devices': by its offer, or as the task's stable version.
        """
        if self.stage == "done":
            return 100.0
        if not self.is_offered or self.stage == "beta":
            return 0.0
        spec = self.release.spec
        percent = spec.gray[self.step].percent if self.stage == "gray" else 100.0
        return _share(spec, percent, self.before)


def reach_of(state: ReleaseState) -> str:
    """Return for people which devices may get the version now."""
    spec = state.release.spec
    if state.stage == "beta" and spec.beta is not None:
        return f"{len(spec.beta.devices)} named devices"
    if state.stage not in OFFERED and state.stage != "done":
        return "no device"
    is_for_all = spec.policy == Policy()
    whom = "of the devices" if is_for_all else "of the devices that its policy lets in"
    as_what = ", as the stable version" if state.stage == "done" and is_for_all else ""
    return f"{state.percent:g} % {whom}{as_what}"


def current_step(state: ReleaseState) -> Step | None:
    """Return the step in which a release is, or None where its stage has none."""
    spec = state.release.spec
    match state.stage:
        case "beta":
            return spec.beta
        case "gray":
            return spec.gray[state.step]
        case "full":
            return spec.full
        case _:
            return None


def offer_of(state: ReleaseState) -> ActiveRelease | None:
    """Return what devices are given or lose, or None for nothing."""
    if state.is_withdrawn:
        name, spec = state.release.metadata.name, state.release.spec
        return ActiveRelease(name, spec.task, spec.version, "withdrawn")
    if not state.is_offered:
        return None
    release, created_ms = state.release, state.created_ms
    match state.stage:
        case "beta" | "gray" | "full" as stage:
            percent = release.spec.gray[state.step].percent if stage == "gray" else 100.0
            offer = offer_at(release, stage, percent, created_ms, state.before)
            return replace(offer, step_ms=state.step_ms)
        case _:  # done: it stays with the devices that its policy lets in, all of them
            offer = offer_at(release, "full", 100.0, created_ms)
            return replace(offer, devices=frozenset(), is_watched=False)


def offer_at(
    release: Release,
    stage: Literal["beta", "gray", "full"],
    percent: float,
    created_ms: int,
    before: str = "",
) -> ActiveRelease:
    """Return what devices are given at a stage of a release in progress.

    ``percent`` is of the devices, at stage ``gray``; the hold-out is no part of it. ``before`` is
    the version that it is compared with; empty for none.
    """
    spec = release.spec
    return ActiveRelease(
        release_id=release.metadata.name,
        task=spec.task,
        version=spec.version,
        stage=stage,
        policy=spec.policy.plain,
        devices=frozenset(spec.beta.devices) if spec.beta else frozenset(),
        percent=100.0 if stage == "beta" else _share(spec, percent, before),
        salt=release.metadata.name,
        priority=spec.priority,
        created_ms=created_ms,
        is_watched=True,
        before=before if before != spec.version else "",
    )


def _share(spec: ReleaseSpec, percent: float, before: str) -> float:
    has_hold_out = before not in {"", spec.version}
    return min(percent, 100.0 - spec.hold_out) if has_hold_out else percent
