"""Looks at the process's memory and stops runs when it is too large.

No interpreter has a memory limit of its own: what can be seen is the whole
process. Above the bound the run that is at hand for longest is told to stop,
then the next one; its VM is not used again. One that does not obey is inside C
code: the pool is told, as of a run that is stuck. One allocation that is larger
than all of it meets a limit of the system instead (``limit_data``), and so does
everything in a VM with a process of its own.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.vm.machine import Machine

LOOK_EVERY_S: Final = 0.05
"""How often the watchdog looks."""

OBEY_AFTER_MS: Final = 2_000.0
"""A run that was told to stop and still stands is stuck in C code."""

_NEXT_AFTER_MS: Final = 250.0
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


class _Seen(msgspec.Struct):
    number: int
    since_ms: float
    asked_ms: float = 0.0
    is_stuck: bool = False


class MemoryGuard:
    """Holds a process below a bound. Run by the watchdog's thread alone."""

    def __init__(
        self,
        limit_bytes: int,
        machines: Callable[[], Iterable[Machine]],
        on_stop: Callable[[Machine], None],
        on_stuck: Callable[[Machine], None],
    ) -> None:
        """Start with nothing seen.

        Args:
            limit_bytes: Most resident memory of the process.
            machines: All VMs that live in it.
            on_stop: Told of every VM whose run was told to stop.
            on_stuck: Told once of a run that did not obey.
        """
        self._limit_bytes = limit_bytes
        self._machines = machines
        self._on_stop = on_stop
        self._on_stuck = on_stuck
        self._seen: dict[Machine, _Seen] = {}
        self._next_ms = 0.0

    def look(self) -> None:
        """Look once."""
        now_ms = monotonic_ms()
        seen = {}
        for machine in self._machines():
            number = machine.run_number
            if number:
                before = self._seen.get(machine)
                is_same = before is not None and before.number == number
                seen[machine] = before if before and is_same else _Seen(number, now_ms)
        self._seen = seen
        if resident_bytes() <= self._limit_bytes:
            return
        for machine, run in sorted(seen.items(), key=lambda item: item[1].since_ms):
            if run.asked_ms:
                if now_ms - run.asked_ms >= OBEY_AFTER_MS and not run.is_stuck:
                    run.is_stuck = True
                    self._on_stuck(machine)
            elif now_ms >= self._next_ms and machine.stop_run(for_memory=True):
                run.asked_ms = now_ms
                # one at a time: what it held is given back in a moment
                self._next_ms = now_ms + _NEXT_AFTER_MS
                self._on_stop(machine)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a fifth of a Path's time
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def limit_data(limit_bytes: int) -> bool:
    """Let a single huge allocation fail where it is made, before the machine is out of memory.

    What a watchdog cannot do: it looks now and then, and C code that fills new
    memory obeys nobody. The bound is on private writable memory, touched or not
    (``RLIMIT_DATA``), so it lies a quarter above the watchdog's. For programs
    that own their process: it holds for all of it.

    Args:
        limit_bytes: The watchdog's bound, on top of what there is already.

    Returns:
        Whether it is in force; only Linux counts this way.
    """
    if sys.platform != "linux":
        return False
    import resource  # noqa: PLC0415 - not on every platform

    try:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bound = data_bytes() + limit_bytes + limit_bytes // 4
        soft = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    except (OSError, ValueError):
        return False
    return True


def data_bytes() -> int:
    """Return the private writable memory of this process; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def machine_bytes() -> int:
    """Return the memory that this process may have: the machine's, or its control group's."""
    bounds = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            bounds.append(int(Path(path).read_text(encoding="ascii")))
    return min(bounds)


# a Windows without it imports this, and runs no VMs
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
