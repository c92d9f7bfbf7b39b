"""How quiet the machine is: a wall clock says nothing of us where others take the cores."""

import os
import time
from pathlib import Path
from typing import Any, Final

_GAP_MS: Final = 0.05
"""Shorter ones are the loop's own, and interrupts."""


QUIET_CORES: Final = 0.05
"""A measurement counts while the hypervisor and others took at most this number of cores."""


def is_quiet(found: dict[str, Any]) -> bool:
    """Tell whether a measurement had a quiet core.

    Args:
        found: With what ``Neighbours`` reported under ``cores``.
    """
    cores = found["cores"]
    return (cores["others"] or 0.0) + (cores["stolen"] or 0.0) <= QUIET_CORES


def spin(seconds: float) -> dict[str, float]:
    """Look at the clock as often as one can, with nothing else to do: the control.

    A thing that keeps this loop from its clock keeps a pipeline from its commit, too. It
    runs before and after a measurement, not beside it: there it would be a neighbour.

    Args:
        seconds: How long; blocks.
    """
    clock = time.perf_counter
    gaps = []
    last = began = clock()
    while last - began < seconds:
        now = clock()
        if now - last > _GAP_MS / 1e3:
            gaps.append((now - last) * 1e3)
        last = now
    return {
        "seconds": seconds,
        "largest_gap_ms": round(max(gaps, default=0.0), 3),
        "lost_percent": round(sum(gaps) / (last - began) / 10, 2),
    }


class Neighbours:
    """The load of the rest of the machine during a measurement of this process."""

    def __init__(self) -> None:
        """Begin."""
        self._before = self._look()

    def report(self) -> dict[str, float | None]:
        """Return it, in cores; None where the kernel does not say.

        ``stolen``: what the hypervisor gave to other machines. ``others``: other processes
        and the kernel. ``waited``: our threads, ready to run, behind others (of the
        threads that live now).
        """
        before, after = self._before, self._look()
        seconds = after["at_s"] - before["at_s"]
        spent = {name: (after[name] - before[name]) / seconds for name in after if name in before}
        found: dict[str, float | None] = {"ours": spent["ours"], "stolen": None, "others": None}
        if "busy" in spent:
            found |= {"stolen": spent["stolen"], "others": max(spent["busy"] - spent["ours"], 0.0)}
        found["waited"] = spent.get("waited")
        return {name: None if each is None else round(each, 3) for name, each in found.items()}

    def _look(self) -> dict[str, float]:
        seen = {"at_s": time.monotonic(), "ours": time.process_time()}
        try:
            ticks = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
            user, nice, system, _, _, irq, soft, stolen = map(int, ticks[:8])
            tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
            seen["busy"] = (user + nice + system + irq + soft) * tick_s
            seen["stolen"] = stolen * tick_s
            waits = [
                int((task / "schedstat").read_text(encoding="ascii").split()[1])
                for task in Path("/proc/self/task").iterdir()
            ]
            seen["waited"] = sum(waits) / 1e9
        except (OSError, ValueError, IndexError):
            pass  # another kernel, or a thread that ended meanwhile
        return seen
