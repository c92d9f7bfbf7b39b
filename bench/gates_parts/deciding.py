"""One release over a simulated fleet, decided by the product's gates."""

from itertools import product
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from gates_parts.fleet import CLOSED, PERCENTS, Counted, Setting, drawn, simulate
from gates_parts.values import Values
from walle_deploy.model.health import GroupHealth, ReleaseHealth, VersionHealth
from walle_deploy.release.gates import GATES as SHARED
from walle_deploy.release.gates import Judgement, judge
from walle_deploy.release.limits import Gates
from walle_deploy.release.logrank import Array, gains, strength
from walle_deploy.release.memory import Folded, Memory, look

GATES: Final = Gates()
_LEAST: Final = 0.69
"""No gate asks for less evidence against the control group than that, in logarithms."""


_LOOKS: Final = (0.1, 0.3, 0.6, 1.0)
"""At latency and output, by share of a step."""


class Ended(NamedTuple):
    """What became of a release."""

    stopped_at: int | None
    """Minute; None: it went through."""
    reached: float
    """Share of the devices that had the version then."""
    gate: str = ""
    """That stopped it."""


def decide(setting: Setting, seed: int, number: int) -> Ended:
    """Return how a release ends: looks at every minute, at latency and output four times a step.

    Args:
        setting: Of the fleet.
        seed: Of all runs.
        number: Of this one.
    """
    rng = np.random.default_rng([seed, number, crc32(repr(setting).encode())])
    counted = simulate(setting, rng)
    found = _first_stop(counted)
    drifted = None if setting.failing else _drifted(setting, rng)
    if drifted is not None and (found is None or drifted[0] < found[0]):
        found = drifted
    if found is None:
        return Ended(None, 1.0)
    minute, judgement = found
    gates = [each.gate for each in judgement.verdicts if each.outcome == "stop"]
    at = min(minute, len(counted.installed) - 1)
    return Ended(minute, float(counted.installed[at]) / setting.devices, gates[0])


def folded(counted: Counted) -> Array:
    """Return what the bets made after each minute: what folding window by window gives, at once."""
    new = counted.new_at_risk.astype(np.float64), counted.new_reached.astype(np.float64)
    control = counted.control_at_risk.astype(np.float64), counted.control_reached.astype(np.float64)
    return np.asarray(np.cumsum(gains(new, control), axis=0))


def _first_stop(counted: Counted) -> tuple[int, Judgement] | None:
    logs, failing = folded(counted), -1
    rows = np.minimum(np.arange(len(logs)) + CLOSED, len(logs)) - 1
    kept = GATES.failures.tolerated * counted.control_devices[rows]
    is_sound = counted.control_failing[rows] <= kept
    # which looks the product's gates could stop at; they are asked at each of them
    least = np.where(is_sound, _LEAST, np.log(SHARED / GATES.error_rate))
    for window in np.flatnonzero(strength(logs) >= least):
        row = int(rows[window])
        if counted.new_failing[row] == failing:
            continue  # no further one failed since what was tolerated was kept
        judgement = judge(GATES, _memory(counted, logs[window], row))
        if judgement.outcome == "stop":
            return int(window) + CLOSED, judgement
        tolerated = judgement.verdicts[0].beyond_tolerated
        failing = counted.new_failing[row] if (tolerated or 0.0) < 1 else -1
    return None


def _memory(counted: Counted, logs: Array, row: int) -> Memory:
    new = VersionHealth(
        task="t",
        version="v2",
        devices=int(counted.new_devices[row]),
        failing_devices=int(counted.new_failing[row]),
    )
    control = VersionHealth(
        task="t",
        version="v1",
        devices=int(counted.control_devices[row]),
        failing_devices=int(counted.control_failing[row]),
    )
    health = ReleaseHealth(
        new=GroupHealth(release=new, step=new), control=GroupHealth(release=control, step=control)
    )
    made = tuple(tuple(each) for each in logs.tolist())
    return Memory(health=health, control_percent=50.0, failures=Folded(made))


def _drifted(setting: Setting, rng: np.random.Generator) -> tuple[int, Judgement] | None:
    clock, fleet = drawn(setting, rng)
    values, memory = Values(clock, fleet, rng), Memory()
    for step, at in product(range(len(PERCENTS) + 1), _LOOKS):
        begin, end = fleet.begins[step : step + 2]
        minute = begin + at * (end - begin)
        health = values.health(step, minute)
        memory = look(memory, GATES, health, step + 1, control_percent=50.0)
        judgement = judge(GATES, memory, is_over=True)
        if judgement.outcome == "stop":
            return int(minute), judgement
    return None
