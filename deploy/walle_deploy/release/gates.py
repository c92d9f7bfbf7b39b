"""The gates of a release: each lets the release go on, makes it wait, or stops it.

Each gate is a sequential test that may be evaluated any number of times. The four gates share
``errorRate`` evenly (Bonferroni).

- failures, crashes: the unit is a device, and two null hypotheses must both be rejected. The first
  says that at most ``tolerated`` of the devices are affected (``evidence``). The second says that
  devices of the new version are affected no sooner than the control group (``logrank``).
- latency: at most ``tolerated`` times slower than the control group; output: at most ``tolerated``
  times larger or smaller (``drift``).

A version like the previous one is stopped with a probability of at most ``errorRate`` over the
whole release. The same holds for a version that stays within ``tolerated``. This is proven for
failures and crashes, and measured for latency and output; docs/deploy/releases.md has the figures.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec
import numpy as np

from walle_deploy.model.health import GroupHealth, ReleaseHealth, VersionHealth
from walle_deploy.release.drift import Moved, moved_latency, moved_output
from walle_deploy.release.evidence import SHARES_BETS, Counts, exceeds
from walle_deploy.release.limits import Gates
from walle_deploy.release.logrank import Array, gains, strength
from walle_deploy.release.memory import Folded, Memory
from walle_deploy.release.rates import Rate, rate_of, share_of

type Outcome = Literal["go", "wait", "stop"]
"""``wait``: the gate needs more data."""

GATES: Final = 4
"""Number of gates that share the error rate, even if some are off or have nothing to compare."""

_HOUR: Final = 60

_EXPECTED: Final = 5.0
"""A group of which more devices than this are expected exists: its reports are only late."""

_FEW: Final = 0.1
"""Share of a group's expected devices that must report; fewer say nothing about the others. At
night, and where devices run seldom, a step lasts until this share has reported."""

_WEAK: Final = math.log(2)
"""Evidence that suffices against a control group that is itself within ``tolerated``. A version
like that group is within it too, so the first test protects it. Measured, not proven."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one group in one gate."""

    version: str
    devices: int
    """Devices that reported runs since the release was offered. For latency and output: devices
    whose values are compared in this step."""
    affected: int | None = None
    """Devices among these that had a failure or a crash."""
    device_minutes: int
    """Sum over the devices of the minutes in which a device ran and was not yet affected; the
    exposure of the rates. For latency and output: the minutes with runs in this step."""
    per_device_hour: Rate | None = None
    """First failures or crashes of devices, per hour in which a device ran."""
    per_run: Rate | None = None
    """Share of runs that failed, with runs taken as independent; None for crashes."""


class Shift(msgspec.Struct, frozen=True):
    """Shares of devices in both groups beyond a quantile of the control group's values."""

    what: str
    """The quantile, such as ``above p50``."""
    new: Rate | None
    """Share of new devices beyond the tolerated change of the quantile, with Wilson's interval."""
    control: Rate | None
    """Share of control devices beyond the quantile itself."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one gate."""

    gate: str
    """``failures``, ``crashes``, ``latency`` or ``output``."""
    outcome: Outcome
    evidence: float
    """Evidence on a logarithmic scale from 0 up; at 1 the release is stopped."""
    text: str
    beyond_tolerated: float | None = None
    """For failures and crashes: evidence against the tolerated share; 1 suffices for this test."""
    beyond_control: float | None = None
    """Likewise against the control group; None without a control group."""
    new: Side | None = None
    control: Side | None = None
    shifts: tuple[Shift, ...] = ()
    """For latency and output: the quantiles that are compared."""
    decides: int | None = None
    """Number of further affected devices that would stop the release now, with no more of them in
    the control group. For latency and output these devices are slower, or have more output, than
    all others. None if all devices with the version would not suffice."""

    @property
    def would_decide(self) -> str:
        """A description for people of the devices that would stop the release now."""
        if self.decides is None:
            return "nothing now, not even all devices of this step together"
        kind = {"latency": "slower", "output": "larger"}.get(self.gate, "affected")
        return f"{self.decides:,} more {kind} devices, and no more in the control group"


class Judgement(msgspec.Struct, frozen=True):
    """The result of all gates."""

    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    devices: int
    """Devices that reported runs of the new version."""
    step_devices: int = 0
    """Devices of the group ``new`` that reported runs in this step; in a beta, all devices."""
    exposure: float = 0.0
    """Average number of minutes in which each of these devices ran in this step."""
    silent: tuple[VersionHealth, ...] = ()
    """Health over the whole release of each group of which far fewer devices than expected, or
    none, reported in this step."""

    @property
    def why(self) -> str:
        """The findings of the gates that decided, for the audit log."""
        if self.outcome == "stop":
            return "; ".join(verdict.text for verdict in self.verdicts if verdict.outcome == "stop")
        return f"{self.step_devices} devices in this step, no gate stops it"


def judge(gates: Gates, memory: Memory, *, is_over: bool = False) -> Judgement:
    """Return the result of a release's gates.

    ``is_over`` marks an ended release, which no further devices can stop.
    """
    health = memory.health
    if health is None:
        return Judgement("wait", (), 0)
    limit = math.log(GATES / gates.error_rate)
    verdicts = [
        _share("failures", gates.failures.tolerated, limit, memory, health),
        _share("crashes", gates.crashes.tolerated, limit, memory, health),
    ]
    if memory.control_percent:
        new, old = health.new.step, health.control.step
        if gates.latency.enabled:
            moved = moved_latency(gates.latency, new, old)
            text = _latency(gates.latency.tolerated, moved, old.version)
            verdicts.append(_drift(text, memory.latency, limit, moved, health, is_over=is_over))
        if gates.output.enabled:
            moved = moved_output(gates.output, new, old)
            text = (
                f"output: median {moved.ratio(0.5):.2f} times that of {old.version}, "
                f"tolerated {gates.output.tolerated:g} either way"
            )
            verdicts.append(_drift(text, memory.output, limit, moved, health, is_over=is_over))
    step, silent = health.new.step, tuple(_silent(memory, health))
    is_stopped = any(verdict.outcome == "stop" for verdict in verdicts)
    outcome: Outcome = "stop" if is_stopped else "wait" if silent else "go"
    exposure = step.device_minutes / step.devices if step.devices else 0.0
    devices = health.new.release.devices
    return Judgement(outcome, tuple(verdicts), devices, step.devices, exposure, silent)


def _silent(memory: Memory, health: ReleaseHealth) -> Iterator[VersionHealth]:
    """Yield the groups of which hardly any device reported in this step.

    The expected number is the group's share of all devices that reported in the release so far. The
    control group's devices of this step cannot give it: many of them have moved to ``new`` since.
    """
    share = memory.control_percent / 100
    known = max(health.new.release.devices, health.control.release.devices)
    for group, expected, is_needed in (
        (health.new, known * (1 - share), True),
        (health.control, known * share, _expects_control(memory, health)),
    ):
        devices = group.step.devices
        if (is_needed and not devices) or (expected > _EXPECTED and devices < _FEW * expected):
            yield group.release


def _has_control(memory: Memory, health: ReleaseHealth) -> bool:
    """Return whether there is a control group; a small hold-out may have no device."""
    is_there = memory.control_percent > 0 and health.control.release.devices > 0
    return is_there or _expects_control(memory, health)


def _expects_control(memory: Memory, health: ReleaseHealth) -> bool:
    share = memory.control_percent / 100
    return health.new.step.devices * share > _EXPECTED * (1 - share)


class _Tests:
    """Both tests of a share of devices, optionally with hypothetical further affected devices."""

    def __init__(
        self, new: Side, control: Side | None, folded: Folded, beside: tuple[float, float]
    ) -> None:
        self._new, self._control = new, control
        self._logs, self._beside = np.asarray(folded.logs), beside

    def evidence(self, tolerated: float, limit: float, more: int = 0) -> tuple[float, float | None]:
        """Return the evidence against the tolerated share and against the control group."""
        counts = Counts((self._new.affected or 0) + more, self._new.devices)
        beyond = exceeds(counts, tolerated, SHARES_BETS) / limit
        if self._control is None:
            return beyond, None
        logs = self._logs.copy()
        if more:
            mine, others = self._beside
            logs[0] += gains(_group(mine, more), _group(others, 0))[0]
        is_sound = (self._control.affected or 0) <= tolerated * self._control.devices
        return beyond, float(strength(logs)) / (min(limit, _WEAK) if is_sound else limit)

    def decides(self, tolerated: float, limit: float) -> int | None:
        """Return the least number of further affected devices that would stop the release.

        Bisection finds the number, because evidence grows with each affected device.
        """

        def is_stopped(more: int) -> bool:
            return _both(self.evidence(tolerated, limit, more)) >= 1

        most = min(self._new.devices - (self._new.affected or 0), self._beside[0])
        return _least(is_stopped, int(most))


def _least(is_stopped: Callable[[int], bool], most: int) -> int | None:
    """Return the least number that stops the release, or None if even ``most`` does not."""
    if not is_stopped(most):
        return None
    return bisect_left(range(most), x=True, key=is_stopped)


def _both(evidence: tuple[float, float | None]) -> float:
    beyond, compared = evidence
    return beyond if compared is None else min(beyond, compared)


def _beside(health: ReleaseHealth) -> tuple[float, float]:
    """Return the number of devices of each group in this step."""
    return float(health.new.step.devices), float(health.control.step.devices)


def _group(at_risk: float, reached: float) -> tuple[Array, Array]:
    return np.array([at_risk]), np.array([reached])


def _share(
    gate: str, tolerated: float, limit: float, memory: Memory, health: ReleaseHealth
) -> Verdict:
    """Test the share of affected devices, and how soon they are affected.

    The first test is the promise, independent of the control group. The second test alone would
    stop a version that fails on two devices of a million.
    """
    folded = memory.failures if gate == "failures" else memory.crashes
    has_control = _has_control(memory, health)
    new = _side(gate, health.new, folded, 0)
    control = _side(gate, health.control, folded, 1) if has_control else None
    tests = _Tests(new, control, folded, _beside(health))
    beyond, compared = tests.evidence(tolerated, limit)
    evidence, more = _both((beyond, compared)), tests.decides(tolerated, limit)
    text = f"{gate}: {_devices(new)}"
    text += ", no control group" if control is None else f", {_devices(control)} beside"
    text += f", tolerated {tolerated:.2%}"
    if evidence < 1 and more is not None:
        text += f"; {more} more would stop it"
    return Verdict(
        gate=gate,
        outcome=_outcome(evidence, health.new.step.devices),
        evidence=_shown(evidence),
        text=text,
        beyond_tolerated=_shown(beyond),
        beyond_control=None if compared is None else _shown(compared),
        new=new,
        control=control,
        decides=more,
    )


def _side(gate: str, group: GroupHealth, folded: Folded, index: int) -> Side:
    health, minutes = group.release, folded.at_risk[index]
    is_failures = gate == "failures"
    return Side(
        version=health.version,
        devices=health.devices,
        affected=health.failing_devices if is_failures else health.crashing_devices,
        device_minutes=minutes,
        per_device_hour=rate_of(folded.reached[index], minutes / _HOUR),
        per_run=share_of(health.failures, health.runs) if is_failures else None,
    )


def _latency(tolerated: float, moved: Moved, version: str) -> str:
    if not moved.is_alike:
        return f"latency: no call sizes in common with {version}, bounds, tolerated {tolerated:g}"
    return (
        f"latency: p50 {moved.ratio(0.5):.2f}, p99 {moved.ratio(0.99):.2f} times "
        f"that of {version}, tolerated {tolerated:g}"
    )


def _drift(
    text: str, kept: float, limit: float, moved: Moved, health: ReleaseHealth, *, is_over: bool
) -> Verdict:
    gate, new = text.partition(":")[0], health.new.step
    evidence = (kept + moved.evidence()) / limit
    sides = [
        Side(
            version=group.version,
            devices=round(values.above(0).total) if values.buckets else 0,
            device_minutes=group.device_minutes,
        )
        for group, values in ((new, moved.new), (health.control.step, moved.old))
    ]
    return Verdict(
        gate=gate,
        outcome=_outcome(evidence, 1),
        evidence=_shown(evidence),
        text=text if moved.is_known else f"{gate}: no runs to compare yet",
        new=sides[0],
        control=sides[1],
        shifts=tuple(
            Shift(test.what, share_of(*test.new), share_of(*test.old)) for test in moved.tests
        ),
        decides=None
        if is_over
        else _least(lambda more: kept + moved.evidence(more) >= limit, new.devices),
    )


def _outcome(evidence: float, devices: int) -> Outcome:
    return "stop" if evidence >= 1 else "go" if devices else "wait"


def _shown(evidence: float) -> float:
    return round(max(0.0, evidence), 3)


def _devices(side: Side) -> str:
    return f"{side.affected or 0:g} of {side.devices:g} devices of {side.version}"
