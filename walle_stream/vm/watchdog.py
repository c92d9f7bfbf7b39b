"""The watchdog checks all VMs of a pool and stops runs that exceed their time or memory.

A guest writes the number of its current run into memory that the host sees. A
number that stays for longer than its task's limit is a runaway. The check costs
calls nothing. Python code stops within milliseconds of the request. A run that
continues is inside C code and cannot be stopped, so the pool is told.

An interpreter has no memory limit of its own; only the memory of the whole
process is known. Above its bound, the longest current run is told to stop, then
the next one, and their VMs are not reused. A single huge allocation meets a limit
of the system instead (``memory.limit_data``), and so does a VM in its own process.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.vm.machine import Machine
from walle_stream.vm.memory import resident_bytes

_log = logging.getLogger(__name__)

STUCK_AFTER_MS: Final = 2_000.0
"""Time after which a run that was told to stop counts as stuck in C code."""

_LONGEST_LOOK_S: Final = 1.0
_REPEAT_STOP_S: Final = 0.02
_SHORTEST_LOOK_S: Final = 0.002
_LOOKS_PER_LIMIT: Final = 4
_MEMORY_LOOK_S: Final = 0.05
_NEXT_FOR_MEMORY_MS: Final = 250.0


class _Look(msgspec.Struct):
    limit_ms: float
    cpu_limit_ms: float = 0.0
    """0 for no limit."""
    cpu_ms: float = 0.0
    """CPU time of the VM when the run was first seen."""
    run_number: int = 0  # of the last run that was seen
    since_ms: float = 0.0
    asked_ms: float = 0.0
    paused_ms: float = 0.0
    """Time since which the VM has no current run."""
    is_for_memory: bool = False
    """Whether the run was asked to stop because of memory."""
    is_stuck: bool = False


class _Job(msgspec.Struct):
    interval_ms: float
    done_ms: float
    function: Callable[[], None]


class Watchdog:
    """Watcher of VMs with its own thread; thread-safe."""

    def __init__(
        self, on_stop: Callable[[Machine], None], on_stuck: Callable[[Machine], None]
    ) -> None:
        """Start with nothing to watch; the thread starts with the first VM.

        Args:
            on_stop: Called for every VM whose run was asked to stop; must not block.
            on_stuck: Called once for a run that did not stop.
        """
        self._on_stop = on_stop
        self._on_stuck = on_stuck
        self._looks: dict[Machine, _Look] = {}
        self._jobs: list[_Job] = []
        self._memory_bytes = 0
        self._is_full = False  # whether the process was above the bound at the last check
        self._next_for_memory_ms = 0.0
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, machine: Machine, limit_ms: float, cpu_limit_ms: float = 0.0) -> None:
        """Begin to watch the time and CPU time of a VM's runs; a CPU limit of 0 means none."""
        with self._lock:
            self._looks[machine] = _Look(limit_ms, cpu_limit_ms)
            if self._thread is None and not self._is_closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="walle-vm-watchdog", daemon=True
                )
                self._thread.start()

    def every(self, interval_s: float, job: Callable[[], None]) -> None:
        """Call ``job`` at an interval once a VM is watched; ``job`` must not block."""
        with self._lock:
            self._jobs.append(_Job(interval_s * 1000.0, monotonic_ms(), job))

    def limit_memory(self, limit_bytes: int) -> None:
        """Stop runs of VMs in this process while its resident memory is above a bound."""
        self._memory_bytes = limit_bytes
        self.every(_MEMORY_LOOK_S, self._look_at_memory)

    def forget(self, machine: Machine) -> None:
        """Stop watching a VM; do nothing if it is not watched."""
        with self._lock:
            self._looks.pop(machine, None)

    def close(self) -> None:
        """End the thread; may be called twice."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        wait_s = _SHORTEST_LOOK_S
        while not self._is_closed.wait(wait_s):
            with self._lock:
                looks = list(self._looks.items())
                jobs = list(self._jobs)
            now_ms = monotonic_ms()
            wait_s = _LONGEST_LOOK_S
            for machine, look in looks:
                self._try(self._look, machine, look, now_ms)
                limit_ms = min(look.limit_ms, look.cpu_limit_ms or look.limit_ms)
                wait_s = min(wait_s, limit_ms / 1000.0 / _LOOKS_PER_LIMIT)
                if look.asked_ms and not look.paused_ms and not look.is_stuck:
                    wait_s = min(wait_s, _REPEAT_STOP_S)
            for job in jobs:
                if now_ms - job.done_ms >= job.interval_ms:
                    job.done_ms = now_ms
                    self._try(job.function)
                wait_s = min(wait_s, job.interval_ms / 1000.0)
            wait_s = max(wait_s, _SHORTEST_LOOK_S)

    def _try(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception:  # noqa: BLE001 - a failure at one VM must not leave the others unwatched
            _log.exception("the watchdog of the VMs failed at one of them")

    def _look(self, machine: Machine, look: _Look, now_ms: float) -> None:
        number = machine.run_number
        if not number:
            # idle, or the host works for the current run, which is not the run's time
            look.paused_ms = look.paused_ms or now_ms
            return
        if number != look.run_number:
            look.run_number, look.since_ms = number, now_ms
            look.asked_ms, look.is_stuck = 0.0, False
            look.cpu_ms = machine.cpu_ms() if look.cpu_limit_ms else 0.0
        elif look.paused_ms:
            pause_ms = now_ms - look.paused_ms
            look.since_ms += pause_ms
            look.asked_ms += pause_ms if look.asked_ms else 0.0
        look.paused_ms = 0.0
        if look.is_stuck:
            return
        if not look.asked_ms:
            if _is_over(machine, look, now_ms):
                self._stop(machine, look, now_ms, for_memory=False)
        elif now_ms - look.asked_ms >= STUCK_AFTER_MS and (
            self._is_full or not look.is_for_memory or _is_over(machine, look, now_ms)
        ):
            look.is_stuck = True
            self._on_stuck(machine)
        else:
            machine.stop_run()  # again, because a stop deep in a recursion may be lost

    def _look_at_memory(self) -> None:
        now_ms = monotonic_ms()
        self._is_full = resident_bytes() > self._memory_bytes
        if not self._is_full or now_ms < self._next_for_memory_ms:
            return
        with self._lock:
            looks = sorted(self._looks.items(), key=lambda item: item[1].since_ms)
        for machine, look in looks:
            may_stop = machine.shares_memory and look.run_number and not look.paused_ms
            if (
                may_stop
                and not look.asked_ms
                and self._stop(machine, look, now_ms, for_memory=True)
            ):
                # one at a time, because its memory is freed in a moment
                self._next_for_memory_ms = now_ms + _NEXT_FOR_MEMORY_MS
                return

    def _stop(self, machine: Machine, look: _Look, now_ms: float, *, for_memory: bool) -> bool:
        is_told = machine.stop_run(for_memory=for_memory)
        if is_told:
            look.asked_ms, look.is_for_memory = now_ms, for_memory
            self._on_stop(machine)
        return is_told


def _is_over(machine: Machine, look: _Look, now_ms: float) -> bool:
    if now_ms - look.since_ms >= look.limit_ms:
        return True
    return 0.0 < look.cpu_limit_ms <= machine.cpu_ms() - look.cpu_ms
