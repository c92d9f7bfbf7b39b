"""The memory of a release's gates: counts folded window by window, and stored with the release.

Failures and crashes are folded once per closed window (``logrank``). Latency and output are
evaluated over a step, in which the ratio of the groups' sizes is constant. The logarithm of a
step's e-value is stored when the next step begins, and the steps' e-values multiply.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from walle_deploy.model.health import LEVELS, GroupWindow, ReleaseHealth
from walle_deploy.release.drift import moved_latency, moved_output
from walle_deploy.release.limits import Gates
from walle_deploy.release.logrank import NOTHING, Array, Logs, gains

_NONE: Final = (0,) * len(LEVELS)


class Folded(msgspec.Struct, frozen=True):
    """Folded windows of failures or of crashes; pairs are of ``new`` and ``control``."""

    logs: Logs = NOTHING
    """Logarithms of the capital of the bets, see ``logrank.gains``."""
    at_risk: tuple[int, int] = (0, 0)
    """Device-minutes: sum over windows of the devices that ran and had no failure before."""
    reached: tuple[int, int] = (0, 0)
    """Devices that had their first failure."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the gates of one release."""

    health: ReleaseHealth | None = None
    """Health at the last look, without windows; None before the first."""
    control_percent: float = 0.0
    """Share of the devices that formed the control group then; 0 for none."""
    step_ms: int = 0
    """Beginning of the step of the last look."""
    window: int = -1
    """Number of the last folded window."""
    failures: Folded = Folded()
    crashes: Folded = Folded()
    latency: float = 0.0
    """Logarithm of the e-value of latency over the previous steps."""
    output: float = 0.0


def look(
    memory: Memory, gates: Gates, health: ReleaseHealth, step_ms: int, *, control_percent: float
) -> Memory:
    """Return the memory after one more look, with the windows after the last folded one.

    ``step_ms`` is the beginning of the step. ``control_percent`` is the share of the devices in the
    release's control group, 0 for none.
    """
    if step_ms != memory.step_ms and memory.health is not None and memory.control_percent > 0:
        new, old = memory.health.new.step, memory.health.control.step
        memory = replace(
            memory,
            latency=memory.latency + moved_latency(gates.latency, new, old).evidence(),
            output=memory.output + moved_output(gates.output, new, old).evidence(),
        )
    new_windows, control_windows = (
        [window for window in group.windows if window.number > memory.window]
        for group in (health.new, health.control)
    )
    every = (*new_windows, *control_windows)
    return replace(
        memory,
        health=replace(
            health, new=replace(health.new, windows=()), control=replace(health.control, windows=())
        ),
        control_percent=control_percent,
        step_ms=step_ms,
        window=max((memory.window, *(window.number for window in every))),
        failures=_fold(memory.failures, "failures", new_windows, control_windows),
        crashes=_fold(memory.crashes, "crashes", new_windows, control_windows),
    )


def _fold(
    folded: Folded, gate: str, new: Sequence[GroupWindow], control: Sequence[GroupWindow]
) -> Folded:
    numbers = sorted({window.number for window in (*new, *control)})
    if not numbers:
        return folded
    mine, others = _arrays(gate, new, numbers), _arrays(gate, control, numbers)
    logs = np.asarray(folded.logs) + gains(mine, others).sum(axis=0)
    totals = [[int(counts[:, 0].sum()) for counts in group] for group in (mine, others)]
    return Folded(
        tuple(tuple(row) for row in logs.tolist()),
        (folded.at_risk[0] + totals[0][0], folded.at_risk[1] + totals[1][0]),
        (folded.reached[0] + totals[0][1], folded.reached[1] + totals[1][1]),
    )


def _arrays(
    gate: str, windows: Iterable[GroupWindow], numbers: Sequence[int]
) -> tuple[Array, Array]:
    """Return the numbers of devices at risk and of failing devices, by window and level."""
    by_number = {window.number: window for window in windows}
    arrays = []
    for what in ("at_risk", "reached"):
        rows = [getattr(by_number.get(number), f"{gate}_{what}", _NONE) for number in numbers]
        arrays.append(np.array(rows, dtype=np.float64))
    return arrays[0], arrays[1]
