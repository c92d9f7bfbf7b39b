"""How a release goes, for people: where it stands, what it waits for, what its gates say."""

import msgspec

from walle_deploy.release.desk import read_state
from walle_deploy.release.gates import Judgement, Verdict, judge
from walle_deploy.release.state import OFFERED, ReleaseState, current_step
from walle_deploy.release.stored_health import read_health
from walle_deploy.store.port import ReadTransaction
from walle_deploy.store.rows import StoredRelease


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A release at one moment."""

    release: str
    task: str
    version: str
    previous: str
    """The stable version when it was created; empty for none."""
    revision: int
    stage: str
    percent: float
    """Of the devices that may get the version now."""
    is_open: bool
    is_paused: bool
    reason: str
    """Why it stands where it stands."""
    waits_for: tuple[str, ...]
    """What has to be so before it goes on."""
    can: tuple[str, ...]
    """Which of ``pause``, ``resume`` and ``rollback`` can be done."""
    created_ms: int
    since_ms: int
    """When the stage or step began."""
    known_devices: dict[str, int]
    """By version, as the release service counts them."""
    reporting_devices: int
    """That reported runs of the version."""
    gates: tuple[Verdict, ...]


def describe(transaction: ReadTransaction, stored: StoredRelease) -> Progress:
    """Return how a release goes.

    Args:
        transaction: To look in.
        stored: The release.
    """
    state = read_state(stored)
    new = read_health(transaction, stored.task, stored.version)
    old = read_health(transaction, stored.task, state.before) if state.before else None
    judgement = judge(state.release.spec.gates, new, old) if state.offered_ms else None
    return Progress(
        release=stored.release_id,
        task=stored.task,
        version=stored.version,
        previous=state.before,
        revision=stored.revision,
        stage=state.stage,
        percent=state.percent,
        is_open=stored.is_open,
        is_paused=state.paused_ms is not None,
        reason=state.reason,
        waits_for=tuple(_waits_for(state, transaction.now_ms(), judgement)),
        can=_can(state),
        created_ms=state.created_ms,
        since_ms=state.since_ms,
        known_devices=dict(transaction.device_counts(stored.task)),
        reporting_devices=new.devices if state.offered_ms else 0,
        gates=judgement.verdicts if judgement is not None else (),
    )


def _can(state: ReleaseState) -> tuple[str, ...]:
    if not state.is_open:
        return ("rollback",) if state.stage == "done" else ()
    return ("pause" if state.paused_ms is None else "resume", "rollback")


def _waits_for(state: ReleaseState, now_ms: int, judgement: Judgement | None) -> list[str]:
    if not state.is_open:
        return []
    if state.paused_ms is not None:
        return ["resume, as it is paused"]
    if state.stage == "simulation" and not state.is_simulated:
        return ["the simulation"]
    step = current_step(state) if state.stage in OFFERED else None
    found = []
    if step is not None and judgement is not None:
        left_ms = state.since_ms + step.min_duration - now_ms
        if left_ms > 0:
            found.append(f"{left_ms / 1000:,.0f} s to go by")
        missing = step.min_devices - judgement.devices
        if missing > 0:
            found.append(f"{missing} more devices to report runs")
        unknown = [each.gate for each in judgement.verdicts if each.outcome == "wait"]
        if unknown:
            found.append(f"something to look at for {', '.join(unknown)}")
    return found or ["the controller's next turn, or the next step's schedule"]
