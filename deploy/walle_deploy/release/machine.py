"""The release pipeline as a pure machine: it takes a state and an event, and returns the new state.

The machine has no I/O and no clock: every event has its time. The offer to devices follows from
the state (``offer_of``), so the two cannot differ. The property tests check these invariants:

- A release that ended never offers its version again.
- The share of devices never shrinks while the version is offered.
- Each change has one action, and so one entry in the audit log.
"""

from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec.structs import replace

from walle_deploy.policy.model import Policy
from walle_deploy.release.events import (
    Advanced,
    Approved,
    Paused,
    Resumed,
    RolledBack,
    Simulated,
    Superseded,
    Tick,
)
from walle_deploy.release.state import OFFERED, ReleaseState, Stage, current_step
from walle_deploy.release.steps import Step
from walle_stream.errors import ConflictError, ForbiddenError, ReleaseStateError

type AnyEvent = Tick | Simulated | Paused | Resumed | Advanced | Approved | RolledBack | Superseded
"""Events that ``advance`` takes."""


class Change(msgspec.Struct, frozen=True):
    """A change of a release by an event."""

    state: ReleaseState
    action: str
    """One word for the audit log: ``begin``, ``simulated``, ``finish``, ``stop``, ``pause``,
    ``resume``, ``advance``, ``approve``, ``rollback`` or ``supersede``."""
    why: str
    stable: str | None = None
    """The task's stable version from now on, "" for none; None if it does not change."""


def advance(state: ReleaseState, event: AnyEvent) -> Change | None:
    """Return the change by an event, or None if the event changes nothing.

    Raises:
        ReleaseStateError: The release's state does not allow the requested change.
        ConflictError: Another person approved the release already.
        ForbiddenError: The author of the release tries to approve it.
    """
    match event:
        case Tick():
            change = _tick(state, event)
        case Simulated():
            change = _simulated(state, event)
        case Paused():
            _refuse(state, "paused", unless=state.is_open)
            if state.paused_ms is not None:
                raise ReleaseStateError(f"{_name(state)} is paused already: {state.reason}")
            change = Change(
                replace(state, paused_ms=event.at_ms, reason=event.why), "pause", event.why
            )
        case Resumed():
            change = _resume(state, event)
        case Advanced():
            change = _go_on(state, event)
        case Approved():
            change = _approve(state, event)
        case RolledBack() | Superseded():
            change = _taken_back(state, event)
        case _:
            assert_never(event)
    return change


def _tick(state: ReleaseState, event: Tick) -> Change | None:
    if not state.is_open or state.is_unapproved:
        return None
    if event.judgement == "stop" and state.stage in OFFERED:
        # also in a pause, because devices keep the version
        return _stop(state, event)
    if event.is_behind:
        why = "the clock was ahead when this step began: its time counts from now"
        return Change(replace(state, since_ms=event.at_ms, step_ms=event.at_ms), "begin", why)
    if state.paused_ms is not None or _has_to_stay(state, event):
        return None
    stage, index, step = next(_after(state))
    if step is not None and not step.may_begin(event.at_ms):
        return None
    return _begin(state, stage, index, event)


def _go_on(state: ReleaseState, event: Advanced) -> Change | None:
    _refuse(state, "advanced", unless=state.is_open)
    if state.is_unapproved:
        raise ReleaseStateError(f"{_name(state)} waits for another person: approve it")
    if state.paused_ms is not None:
        raise ReleaseStateError(
            f"{_name(state)} is paused ({state.reason or 'no reason given'}): resume it, then "
            "advance it"
        )
    if state.stage == "simulation" and not state.is_simulated:
        raise ReleaseStateError(
            f"{_name(state)} cannot be advanced while its simulation runs: wait for its end, or "
            "create one without simulation"
        )
    if event.judgement == "stop" and state.stage in OFFERED:
        return _stop(state, event)
    stage, index, _ = next(_after(state))
    return replace(_begin(state, stage, index, event), action="advance")


def _stop(state: ReleaseState, event: Tick | Advanced) -> Change | None:
    if state.release.spec.on_stop == "rollback":
        return _end(state, event, "rolled_back", "rollback")
    if state.paused_ms is not None:
        return None
    return Change(replace(state, paused_ms=event.at_ms, reason=event.why), "pause", event.why)


def _has_to_stay(state: ReleaseState, event: Tick) -> bool:
    if state.stage == "simulation":
        return not state.is_simulated
    step = current_step(state)
    if step is None:
        return False
    is_short = event.at_ms - state.since_ms < step.min_duration
    is_unseen = event.devices < step.min_devices or event.exposure < step.min_exposure
    return is_short or is_unseen or event.judgement != "go"


def _after(state: ReleaseState) -> Iterator[tuple[Stage, int, Step | None]]:
    """Yield the remaining stages and steps."""
    spec = state.release.spec
    stages: list[tuple[Stage, int, Step | None]] = []
    if spec.simulation is not None:
        stages.append(("simulation", 0, None))
    if spec.beta is not None:
        stages.append(("beta", 0, spec.beta))
    stages += [("gray", index, step) for index, step in enumerate(spec.gray)]
    stages += [("full", 0, spec.full), ("done", 0, None)]
    here = [index for index, entry in enumerate(stages) if entry[:2] == (state.stage, state.step)]
    yield from stages[here[0] + 1 if here else 0 :]


def _begin(state: ReleaseState, stage: Stage, index: int, event: Tick | Advanced) -> Change:
    is_done, is_first = stage == "done", stage in OFFERED and not state.offered_ms
    # a version for all becomes stable; one for a part of the devices stays offered instead
    is_for_all = state.release.spec.policy == Policy()
    changed = replace(
        state,
        stage=stage,
        step=index,
        since_ms=event.at_ms,
        step_ms=event.at_ms,
        offered_ms=event.at_ms if is_first else state.offered_ms,
        is_offered=not is_for_all if is_done else stage in OFFERED,
        reason=event.why,
    )
    version = state.release.spec.version
    stable = version if is_done and is_for_all else None
    return Change(changed, "finish" if is_done else "begin", event.why, stable)


def _simulated(state: ReleaseState, event: Simulated) -> Change | None:
    if state.stage != "simulation" or state.is_simulated:
        return None
    if not event.passed:
        return _end(state, event, "stopped", "stop")
    return Change(replace(state, is_simulated=True, reason=event.why), "simulated", event.why)


def _approve(state: ReleaseState, event: Approved) -> Change:
    _refuse(state, "approved", unless=state.is_open)
    if not state.author:
        raise ReleaseStateError(f"{_name(state)} needs no approval")
    if state.is_approved:
        raise ConflictError(f"{_name(state)} was approved already: {state.reason or 'it goes on'}")
    if event.by == state.author:
        raise ForbiddenError(f"{_name(state)} is yours: another person has to approve it")
    return Change(replace(state, is_approved=True, reason=event.why), "approve", event.why)


def _resume(state: ReleaseState, event: Resumed) -> Change:
    _refuse(state, "resumed", unless=state.is_open)
    if state.paused_ms is None:
        raise ReleaseStateError(f"{_name(state)} is not paused: there is nothing to resume")
    paused_ms = max(0, event.at_ms - state.paused_ms)
    resumed = replace(state, paused_ms=None, since_ms=state.since_ms + paused_ms, reason=event.why)
    return Change(resumed, "resume", event.why)


def _end(
    state: ReleaseState,
    event: Tick | Simulated | Advanced | RolledBack | Superseded,
    stage: Stage,
    action: str,
) -> Change:
    was_offered = state.offered_ms > 0
    ended = replace(
        state,
        stage=stage if was_offered or stage == "superseded" else "stopped",
        since_ms=event.at_ms,
        is_offered=False,
        is_withdrawn=was_offered and (stage == "rolled_back" or state.is_open),
        paused_ms=None,
        reason=event.why,
    )
    stable = state.previous if stage == "rolled_back" and state.stage == "done" else None
    change_action = action if was_offered or action != "rollback" else "stop"
    return Change(ended, change_action, event.why, stable)


def _taken_back(state: ReleaseState, event: RolledBack | Superseded) -> Change:
    stage: Stage = "rolled_back" if isinstance(event, RolledBack) else "superseded"
    can_end = state.is_open or state.stage == "done"
    _refuse(state, stage.replace("_", " "), unless=can_end)
    return _end(state, event, stage, "rollback" if stage == "rolled_back" else "supersede")


def _refuse(state: ReleaseState, what: str, *, unless: bool) -> None:
    if not unless:
        reason = f" ({state.reason})" if state.reason else ""
        raise ReleaseStateError(
            f"{_name(state)} cannot be {what}: it is {state.stage.replace('_', ' ')}{reason}; "
            "create another release"
        )


def _name(state: ReleaseState) -> str:
    release = state.release
    return f"release {release.metadata.name!r} of {release.spec.task}@{release.spec.version}"
