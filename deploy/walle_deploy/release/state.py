"""The state of a release, and the offer to devices that follows from the state."""

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
"""``stopped``: ended before any device was offered the version; ``rolled_back``: ended later;
``superseded``: ended by another release of its task."""

OPEN: Final = frozenset({"created", "simulation", "beta", "gray", "full"})
"""Stages of a release that has not ended."""

OFFERED: Final = frozenset({"beta", "gray", "full"})
"""Stages in which devices get the version and the gates watch it."""


class ReleaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release at one moment; only ``machine.advance`` changes it."""

    definition: dict[str, object]
    """JSON of the kind ``Release``."""
    previous: str = ""
    """The task's stable version when the release was created; empty for none."""
    compared: str = ""
    """Version of the newest done release that is still offered to the devices that its policy
    admits. This release is compared with that version; empty for the stable version."""
    stage: Stage = "created"
    step: int = 0
    """Index of the gray step, from 0, in stage ``gray``."""
    created_ms: int = 0
    offered_ms: int = 0
    """Time of the first offer to a device; 0 for not yet."""
    since_ms: int = 0
    """Beginning of the stage or step, moved on by pauses. For a release that ended: its end."""
    step_ms: int = 0
    """Beginning of the stage or step, regardless of pauses."""
    paused_ms: int | None = None
    """Time at which the release was paused; None if it is not paused."""
    reason: str = ""
    author: str = ""
    """``Operator.person`` of the release's author; empty if no approval is needed."""
    is_approved: bool = False
    is_simulated: bool = False
    is_offered: bool = False
    is_withdrawn: bool = False
    """Whether devices with the version lose it unless they get another one, because the release was
    taken back or replaced before it was done."""

    @property
    def before(self) -> str:
        """The version that the release is compared with; empty for none."""
        return self.compared or self.previous

    @property
    def control_percent(self) -> float:
        """Share of the devices the policy admits that keep the previous version; 0 for none.

        In a beta it is 0, because named devices are no sample of the others.
        """
        has_version = self.before not in {"", self.release.spec.version}
        return 100.0 - self.percent if has_version and self.stage in {"gray", "full"} else 0.0

    @property
    def release(self) -> Release:
        """The validated definition."""
        return Release.model_validate(self.definition, by_alias=True, by_name=False)

    @property
    def is_unapproved(self) -> bool:
        """Whether the release waits for another person's approval before it begins."""
        return bool(self.author) and not self.is_approved

    @property
    def is_open(self) -> bool:
        """Whether the release has not ended."""
        return self.stage in OPEN

    @property
    def percent(self) -> float:
        """Share of the devices the policy admits that may get the version now.

        A done release reaches all of these devices, by its offer or as the task's stable version.
        """
        if self.stage == "done":
            return 100.0
        if not self.is_offered or self.stage == "beta":
            return 0.0
        spec = self.release.spec
        percent = spec.gray[self.step].percent if self.stage == "gray" else 100.0
        return _share(spec, percent, self.before)


def reach_of(state: ReleaseState) -> str:
    """Return a description for people of the devices that may get the version now."""
    spec = state.release.spec
    if state.stage == "beta" and spec.beta is not None:
        return f"{len(spec.beta.devices)} named devices"
    if state.stage not in OFFERED and state.stage != "done":
        return "no device"
    is_for_all = spec.policy == Policy()
    whom = "of the devices" if is_for_all else "of the devices that its policy admits"
    as_what = ", as the stable version" if state.stage == "done" and is_for_all else ""
    return f"{state.percent:g} % {whom}{as_what}"


def current_step(state: ReleaseState) -> Step | None:
    """Return the current step of a release, or None if its stage has no steps."""
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
    """Return the offer or withdrawal for devices, or None if there is none."""
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
        case _:  # done: the offer stays for all devices that the policy admits
            offer = offer_at(release, "full", 100.0, created_ms)
            return replace(offer, devices=frozenset(), is_watched=False)


def offer_at(
    release: Release,
    stage: Literal["beta", "gray", "full"],
    percent: float,
    created_ms: int,
    before: str = "",
) -> ActiveRelease:
    """Return the offer to devices at a stage of a release in progress.

    ``percent`` of the devices applies to stage ``gray`` and excludes the hold-out. ``before`` is
    the version that the release is compared with; empty for none.
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
