"""Progress of a release for people: its stage, the reasons why it waits, its gates' results."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from walle_deploy.release.commands import read_state
from walle_deploy.release.gates import Judgement, Verdict
from walle_deploy.release.state import ReleaseState, current_step, reach_of
from walle_deploy.release.steps import Step
from walle_deploy.release.stored_health import judge_stored, read_memory
from walle_deploy.store.port import LEADER
from walle_deploy.store.reader import ReadTransaction
from walle_deploy.store.receipt_keys import read_open_mode
from walle_deploy.store.rows import StoredRelease


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A release at one moment."""

    release: str
    task: str
    version: str
    previous: str
    """The stable version when the release was created; empty for none."""
    revision: int
    stage: str
    percent: float
    """Share of the devices that the policy admits that may get the version now; 100 when done."""
    reach: str
    """The share for people, with the policy's admission or the number of named devices."""
    is_open: bool
    is_paused: bool
    reason: str
    waits_for: tuple[str, ...]
    can: tuple[str, ...]
    """Commands that are possible: ``pause``, ``resume``, ``advance``, ``approve``, ``rollback``."""
    created_ms: int
    since_ms: int
    """Beginning of the stage or step; for a release that ended, its end."""
    known_devices: dict[str, int]
    """Number of devices by the version that each reported last."""
    reporting_devices: int
    """Devices that reported runs of the version."""
    last_reports_ms: dict[str, int]
    """By version of both groups: time of the last report of any device; 0 for none."""
    silent: tuple[str, ...]
    """Versions of groups of which hardly any device has reported since the step began."""
    bare_reports: int
    wrong_reports: int
    """Reports of the version with an invalid receipt; ``bare_reports`` had none."""
    gates: tuple[Verdict, ...]
    is_unauthenticated: bool = False
    """Whether the evidence may come from anyone: a release service ran without authentication
    since the release was created."""


def shown_time(at_ms: int) -> str:
    """Return a moment in UTC for people; 0 means never."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z" if at_ms else "–"


def describe(transaction: ReadTransaction, stored: StoredRelease) -> Progress:
    """Return the progress of a release."""
    state = read_state(stored)
    judgement = judge_stored(transaction, state) or Judgement("wait", (), 0)
    health = read_memory(transaction, stored.release_id).health
    groups = () if health is None else (health.new.release, health.control.release)
    bare, wrong = transaction.unproven(stored.task, stored.version)
    waits_for = []
    if state.is_open and transaction.lease_ends_ms(LEADER) <= transaction.now_ms():
        waits_for.append("a release service, because none drives releases now (walle serve)")
    waits_for += _waits_for(state, transaction.now_ms(), judgement)
    return Progress(
        release=stored.release_id,
        task=stored.task,
        version=stored.version,
        previous=state.before,
        revision=stored.revision,
        stage=state.stage,
        percent=state.percent,
        reach=reach_of(state),
        is_open=stored.is_open,
        is_paused=state.paused_ms is not None,
        reason=state.reason,
        waits_for=tuple(waits_for),
        can=_can(state),
        created_ms=state.created_ms,
        since_ms=state.since_ms or state.created_ms,
        known_devices=dict(transaction.device_counts(stored.task)),
        reporting_devices=judgement.devices,
        last_reports_ms={group.version: group.last_ms for group in groups if group.version},
        silent=tuple(group.version for group in judgement.silent),
        bare_reports=bare,
        wrong_reports=wrong,
        gates=judgement.verdicts,
        is_unauthenticated=read_open_mode(transaction).includes(
            stored.release_id, state.created_ms
        ),
    )


def _can(state: ReleaseState) -> tuple[str, ...]:
    if not state.is_open:
        return ("rollback",) if state.stage == "done" else ()
    if state.is_unapproved:
        return ("approve", "rollback")
    if state.paused_ms is not None:
        return ("resume", "rollback")
    if state.stage == "simulation" and not state.is_simulated:
        return ("pause", "rollback")
    return ("pause", "advance", "rollback")


def _waits_for(state: ReleaseState, now_ms: int, judgement: Judgement) -> list[str]:
    if not state.is_open:
        return []
    if state.is_unapproved:
        return [
            f"another person to approve it ('walle release approve {state.release.metadata.name}')"
        ]
    if state.paused_ms is not None:
        return ["a resume, because the release is paused"]
    if state.stage == "simulation" and not state.is_simulated:
        return ["the simulation"]
    step = current_step(state)
    reasons = [] if step is None else list(_step_waits_for(state, step, now_ms, judgement))
    return reasons or ["the controller's next turn, or the next step's schedule"]


def _step_waits_for(
    state: ReleaseState, step: Step, now_ms: int, judgement: Judgement
) -> Iterator[str]:
    left_ms = state.since_ms + step.min_duration - now_ms
    if left_ms > 0:
        yield f"{left_ms / 1000:,.0f} s to pass"
    for group in judgement.silent:
        last = f"the last one came at {shown_time(group.last_ms)}" if group.last_ms else "none came"
        yield f"reports of {group.version}: hardly any device sent one in this step, {last}"
    missing = step.min_devices - judgement.step_devices
    if missing > 0:
        # a share of a small fleet may have too few devices forever
        yield (
            f"{missing} more devices to report runs (a share of a small fleet may hold none: "
            f"'walle release advance {state.release.metadata.name}' goes on without them)"
        )
    if judgement.step_devices and judgement.exposure < step.min_exposure:
        so_far = f"(so far {judgement.exposure:.1f})"
        yield f"its devices to run in {step.min_exposure:g} minutes each {so_far}"
    unknown = [verdict.gate for verdict in judgement.verdicts if verdict.outcome == "wait"]
    if unknown:
        yield f"data for the gates {', '.join(unknown)}"
