"""The gates of a release: whether it may go on, has to wait, or is stopped.

Each gate is a sequential test that may be looked at any number of times. ``errorRate`` is shared
evenly by the four of them (Bonferroni).

- failures, crashes: a device is the unit, and two tests must both reject: that at most
  ``tolerated`` of the devices have one (``evidence``), and that devices of the new version have
  theirs no sooner than those of the control group beside them (``logrank``).
- latency: at most ``tolerated`` times slower than the control group; output: at most so many times
  larger or smaller (``drift``).

A version that is like the one before is stopped with a probability of ``errorRate`` at most over
the whole release, and so is one that keeps what is tolerated. That is proven of failures and
crashes, and measured of the others, where it needs devices with about equally many runs.
docs/deploy/releases.md has the figures.
"""

import math
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
"""``wait`` is not enough data yet."""

GATES: Final = 4
"""That share the error rate, also where some are off, or have nothing to compare with for now."""

_HOUR: Final = 60


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What one group showed of failures, or of crashes."""

    version: str
    devices: int
    """That reported runs since the release was offered."""
    affected: int
    """Of these, devices that had one."""
    device_minutes: int
    """Minutes in which a device ran and had none before, over all: what rates are of."""
    per_device_hour: Rate | None
    """First ones of devices, by hours in which these ran."""
    per_run: Rate | None = None
    """Share of the runs that failed, taken as independent; of crashes, runs are not counted."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one gate found."""

    gate: str
    """``failures``, ``crashes``, ``latency`` or ``output``."""
    outcome: Outcome
    evidence: float
    """0 to 1 and more: at 1 the release is stopped. Logarithmic."""
    text: str
    """For people, with the figures."""
    beyond_tolerated: float | None = None
    """Of failures and crashes: the evidence against what is tolerated; at 1 it would suffice."""
    beyond_control: float | None = None
    """The same against the control group; None without one."""
    new: Side | None = None
    control: Side | None = None
    decides: int | None = None
    """So many more devices with one, and no more in the control group, would stop it now; None: no
    number of those that have the version, or it is not about devices."""


class Judgement(msgspec.Struct, frozen=True):
    """What all gates found."""

    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    devices: int
    """That reported runs of the new version."""

    @property
    def why(self) -> str:
        """The gates that decided, for the audit log."""
        if self.outcome == "stop":
            return "; ".join(each.text for each in self.verdicts if each.outcome == "stop")
        return f"{self.devices} devices, no gate stops it"


def judge(gates: Gates, memory: Memory) -> Judgement:
    """Return what the gates of a release say.

    Args:
        gates: Of the release.
        memory: What they have seen.
    """
    health = memory.health
    if health is None:
        return Judgement("wait", (), 0)
    limit = math.log(GATES / gates.error_rate)
    verdicts = [
        _share("failures", gates.failures.tolerated, memory.failures, memory, limit),
        _share("crashes", gates.crashes.tolerated, memory.crashes, memory, limit),
    ]
    if memory.has_control:
        new, old = health.new.step, health.control.step
        if gates.latency.enabled:
            moved = moved_latency(gates.latency, new, old)
            verdicts.append(_latency(gates.latency.tolerated, moved, memory.latency, old, limit))
        if gates.output.enabled:
            moved = moved_output(gates.output, new, old)
            verdicts.append(_output(gates.output.tolerated, moved, memory.output, old, limit))
    devices = health.new.release.devices
    is_stopped = any(each.outcome == "stop" for each in verdicts)
    outcome: Outcome = "stop" if is_stopped else "go" if devices else "wait"
    return Judgement(outcome, tuple(verdicts), devices)


class _Tests:
    """Both tests of a share of devices, as they would be with more devices that have one."""

    def __init__(
        self, counts: Counts, tolerated: float, folded: Folded, memory: Memory, limit: float
    ) -> None:
        self._counts, self._tolerated, self._limit = counts, tolerated, limit
        self._logs = np.asarray(folded.logs)
        self._has_control = memory.has_control
        self._beside = _beside(memory.health) if memory.health is not None else (0.0, 0.0)

    def tolerated(self, more: int = 0) -> float:
        counts = Counts(self._counts.marked + more, self._counts.total)
        return exceeds(counts, self._tolerated, SHARES_BETS) / self._limit

    def control(self, more: int = 0) -> float | None:
        if not self._has_control:
            return None
        logs = self._logs.copy()
        if more:
            mine, others = self._beside
            logs[0] += gains(_group(mine, more), _group(others, 0))[0]
        return float(strength(logs)) / self._limit

    def both(self, more: int = 0) -> float:
        compared = self.control(more)
        return min(self.tolerated(more), math.inf if compared is None else compared)

    def decides(self) -> int | None:
        """Return how few more would do, by bisection: evidence grows with each."""
        low, high = 0, int(min(self._counts.total - self._counts.marked, self._beside[0]))
        if self.both(high) < 1:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.both(middle) >= 1 else (middle + 1, high)
        return low


def _beside(health: ReleaseHealth) -> tuple[float, float]:
    """Return how many devices of each group there are in this step."""
    return float(health.new.step.devices), float(health.control.step.devices)


def _group(at_risk: float, reached: float) -> tuple[Array, Array]:
    return np.array([at_risk]), np.array([reached])


def _share(gate: str, tolerated: float, folded: Folded, memory: Memory, limit: float) -> Verdict:
    """Test a share of devices, and how soon they are affected.

    The first test is the promise, whatever the control group does. The second one alone would stop
    a version that fails on two devices of a million.
    """
    health = memory.health
    assert health is not None  # noqa: S101 - judge looks first
    new = _side(gate, health.new, folded, 0)
    control = _side(gate, health.control, folded, 1) if memory.has_control else None
    tests = _Tests(Counts(new.affected, new.devices), tolerated, folded, memory, limit)
    found, more = tests.both(), tests.decides()
    text = f"{gate}: {_devices(new)}"
    text += ", no control group" if control is None else f", {_devices(control)} beside"
    text += f", tolerated {tolerated:.2%}"
    if found < 1 and more is not None:
        text += f"; {more} more would stop it"
    compared = tests.control()
    return Verdict(
        gate=gate,
        outcome=_outcome(found, new.devices),
        evidence=_shown(found),
        text=text,
        beyond_tolerated=_shown(tests.tolerated()),
        beyond_control=None if compared is None else _shown(compared),
        new=new,
        control=control,
        decides=more,
    )


def _side(gate: str, group: GroupHealth, folded: Folded, place: int) -> Side:
    health, minutes = group.release, folded.at_risk[place]
    is_failures = gate == "failures"
    return Side(
        version=health.version,
        devices=health.devices,
        affected=health.failing_devices if is_failures else health.crashing_devices,
        device_minutes=minutes,
        per_device_hour=rate_of(folded.reached[place], minutes / _HOUR),
        per_run=share_of(health.failures, health.runs) if is_failures else None,
    )


def _latency(
    tolerated: float, moved: Moved, before: float, old: VersionHealth, limit: float
) -> Verdict:
    found = (before + moved.evidence) / limit
    if not moved.is_known:
        text = "latency: no runs to compare yet"
    elif not moved.is_alike:
        text = (
            f"latency: no calls as large as those of {old.version}; as far as others say, "
            f"{'slower' if found >= 1 else 'not slower'} than {tolerated:g} times"
        )
    else:
        text = (
            f"latency: p50 {moved.ratio(0.5):.2f}, p99 {moved.ratio(0.99):.2f} times "
            f"that of {old.version}, tolerated {tolerated:g}"
        )
    return _drift("latency", found, text)


def _output(
    tolerated: float, moved: Moved, before: float, old: VersionHealth, limit: float
) -> Verdict:
    found = (before + moved.evidence) / limit
    if not moved.is_known:
        return _drift("output", found, "output: no runs to compare yet")
    text = (
        f"output: median {moved.ratio(0.5):.2f} times that of {old.version}, "
        f"tolerated {tolerated:g} either way"
    )
    return _drift("output", found, text)


def _drift(gate: str, found: float, text: str) -> Verdict:
    outcome = _outcome(found, 1)
    return Verdict(gate=gate, outcome=outcome, evidence=_shown(found), text=text)


def _outcome(found: float, devices: int) -> Outcome:
    return "stop" if found >= 1 else "go" if devices else "wait"


def _shown(found: float) -> float:
    return round(max(0.0, found), 3)


def _devices(side: Side) -> str:
    return f"{side.affected:g} of {side.devices:g} devices of {side.version}"
