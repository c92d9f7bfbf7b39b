"""The pool of VMs: a pool for each task, and a VM for each call in flight.

Place in the data flow: a device host calls ``run`` with all runs of one task in
a batch, grouped by device, and gets their features and state changes.

Invariants: a VM runs one program for life, and one call at a time. A VM whose
call failed is destroyed and never reused. Any thread may call, because VMs have
their own threads.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from walle_stream.errors import VmClosedError, VmError, VmStartError
from walle_stream.vm.containment import make_contained, measures_here
from walle_stream.vm.counts import VmCounts, VmStatus
from walle_stream.vm.interpreters import ensure_supported
from walle_stream.vm.machine import Machine
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult
from walle_stream.vm.services import HostServices
from walle_stream.vm.task_pool import BlamedRunError, DeviceTaskPool, SharedTaskPool, TaskPool
from walle_stream.vm.virtual_machine import VirtualMachine
from walle_stream.vm.watchdog import Watchdog

_log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 10.0
"""Longest wait of ``close`` for calls that are running."""

DESTROYED_MAX: Final = 1_000 if sys.version_info < (3, 14) else 0
"""Number of destroyed VMs after which a process should restart; 0 for never. On Python 3.13
each destroyed VM leaks 2.4 to 3.3 MB."""

_MAKERS: Final = 4


type OnStuck = Callable[[str, str], None]
"""Called with the task and the device id of a run that cannot be stopped."""


class PoolLimits(msgspec.Struct, frozen=True):
    """Bounds of a pool."""

    vms: int = 1
    """VMs per task with ``isolation: shared``: the number of threads that call at once."""
    device_vms: int = 64
    """VMs per task with ``isolation: device``."""
    warm_vms: int = 0
    """Spare VMs for the next task or the next replacement."""
    idle_s: float = 0.0
    """A VM is destroyed after an idle time of once to twice this value, except the
    last VM of a task with ``isolation: shared``; 0 for never."""
    max_runs: int = 0
    """A VM is replaced after this number of runs; 0 for never."""
    memory_bytes: int = 0
    """Resident memory of the process above which runs are stopped; 0 for no limit."""


class VmPool(AbstractContextManager["VmPool"]):
    """VMs for a set of tasks; thread-safe."""

    def __init__(
        self,
        tasks: Mapping[str, TaskProgram | CompiledProgram],
        limits: PoolLimits | int,
        on_stuck: OnStuck | None = None,
        quarantined: Iterable[tuple[str, str]] = (),
        services: HostServices | None = None,
        on_quarantined: OnStuck | None = None,
    ) -> None:
        """Check and compile the uncompiled programs, then make their VMs.

        Args:
            tasks: The programs by task name.
            limits: Bounds; a number stands for ``PoolLimits(vms=number)``.
            on_stuck: Called in the watchdog's thread for a run that cannot be
                stopped; the run's call never returns.
            quarantined: (task, device id) pairs that are quarantined from the start.
            services: The host's services for runs; none by default.
            on_quarantined: Called in the caller's thread with task and device id
                of runs that ended the VM of a doubtful call too often.

        Raises:
            ScriptError: A script cannot be loaded.
            VmStartError: VMs cannot be made on this machine.
        """
        self._limits = PoolLimits(vms=max(1, limits)) if isinstance(limits, int) else limits
        self._on_stuck = on_stuck
        self._on_quarantined = on_quarantined
        self._services = services
        self._lock = threading.Lock()
        self._counts = VmCounts()
        self._is_closed = False
        self._task_pools: dict[str, TaskPool] = {}
        self._retiring: list[TaskPool] = []
        self._warm: list[VirtualMachine] = []
        self._makers: list[threading.Thread] = []
        programs = {name: _compiled(task) for name, task in tasks.items()}
        self._watchdog = Watchdog(self._count_stopped, self._count_stuck)
        self._has_interpreters: bool | None = None
        if any(program.isolation != "process" for program in programs.values()):
            self._can_be_inside()  # tried now, before any traffic
        pairs = list(quarantined)
        for name, program in programs.items():
            devices = [device_id for task, device_id in pairs if task == name]
            self._task_pools[name] = self._make_task_pool(program, devices)
        self._fill()
        if self._limits.memory_bytes:
            self._watchdog.limit_memory(self._limits.memory_bytes)
        if self._limits.idle_s:
            self._watchdog.every(self._limits.idle_s, self.sweep)

    def __exit__(self, *_: object) -> None:
        """Close the pool at the end of the block."""
        self.close()

    @property
    def counts(self) -> VmCounts:
        """A copy of the counters."""
        with self._lock:
            counts = msgspec.structs.replace(self._counts)
            for task_pool in self._all_task_pools():
                counts.add(task_pool.counts())
            return counts

    @property
    def is_worn_out(self) -> bool:
        """Whether this process should restart; see ``DESTROYED_MAX``."""
        return 0 < DESTROYED_MAX <= self.counts.destroyed

    @property
    def machines(self) -> list[VmStatus]:
        """All live VMs."""
        alive = [
            machine for task_pool in self._all_task_pools() for machine in list(task_pool.machines)
        ]
        return [
            VmStatus(m.serial, m.task, m.calls, m.runs, m.run_number != 0)
            for m in (*alive, *self._warm)
        ]

    def run(
        self, task: str, groups: Sequence[DeviceGroup], *, is_doubtful: bool = False
    ) -> list[GroupResult]:
        """Run a batch of one task; blocks until a VM is free and done.

        A run that raises, has a malformed output (``outputs``) or ends its process VM is
        a result, not an error. Its state changes and emits are undone, and the other runs
        stand.

        Args:
            task: One of the pool's tasks.
            groups: Runs by device; plain values, borrowed until the return.
            is_doubtful: Whether one of the runs may have ended a process before. If so,
                all run in process VMs, whatever the task's isolation.

        Returns:
            A result for each group, with a result for each run, both in order.

        Raises:
            VmCrashedError: Two VMs in turn ended the call without its
                completion mark.
            FrameError: The batch holds values that are not plain, or two VMs
                in turn returned a malformed or oversized result.
            VmStartError: A destroyed VM could not be replaced.
            VmClosedError: The pool is closed.
            VmError: The pool has no such task.
        """
        if not groups:
            return []
        while True:
            task_pool = self._task_pools.get(task)
            if task_pool is None:
                raise VmError(
                    f"task {task!r} is not in this pool: it has {sorted(self._task_pools)}"
                )
            try:
                chosen = self._contained(task_pool) if is_doubtful else task_pool
                if task_pool.quarantine.has_strikes:
                    return _run_admitted(chosen, groups)
                return chosen.run(groups)
            except VmClosedError:
                # earlier groups of a pool of private VMs ran already; they may run again,
                # because results are the only effect of a call
                if self._is_closed or self._task_pools.get(task) is task_pool:
                    raise
            except BlamedRunError as blamed:
                device_id, position = blamed.args
                ids = {"device_id": device_id, "task": task, "position": position}
                _log.error("a run of task %s ended its process", task, extra=ids)
                is_out = (
                    chosen is not task_pool and task_pool.quarantine.reason(device_id) is not None
                )
                if is_out and self._on_quarantined is not None:
                    self._on_quarantined(task, device_id)

    def install(
        self, program: TaskProgram | CompiledProgram, quarantined: Iterable[str] = ()
    ) -> None:
        """Add a task, or replace its old version; blocks.

        Running calls of the old version complete, and then its VMs are destroyed.
        The old version's strikes are dropped.

        Raises:
            ScriptError: The script cannot be loaded; nothing has changed.
            VmStartError: A VM cannot be made; nothing has changed.
            VmClosedError: The pool is closed.
        """
        compiled = _compiled(program)
        task_pool = self._make_task_pool(compiled, quarantined)
        try:
            task_pool.fill()
        except BaseException:
            task_pool.close(0.0)
            raise
        with self._lock:
            is_closed = self._is_closed
            old = None if is_closed else self._task_pools.get(compiled.task)
            if not is_closed:
                self._task_pools[compiled.task] = task_pool
            self._retiring += [] if old is None else [old]
        if is_closed:
            task_pool.close(0.0)
            raise VmClosedError("the VM pool is closed: open a new one")
        if old is not None:
            self._retire(old)

    def uninstall(self, task: str) -> None:
        """Remove a task, if present; its VMs are destroyed after their running calls."""
        with self._lock:
            task_pool = self._task_pools.pop(task, None)
            self._retiring += [] if task_pool is None else [task_pool]
        if task_pool is not None and not self._beside(lambda: self._retire(task_pool)):
            self._retire(task_pool)

    def sweep(self) -> None:
        """Destroy VMs that were idle since the last sweep."""
        for task_pool in self._all_task_pools():
            task_pool.sweep()

    def close(self) -> None:
        """Destroy all VMs; may be called twice.

        Waits up to ``CLOSE_TIMEOUT_S`` for running calls. VMs of longer calls
        are destroyed after the call.
        """
        with self._lock:
            self._is_closed = True
            makers, self._makers = self._makers, []
        for maker in makers:
            maker.join(CLOSE_TIMEOUT_S)
        with self._lock:
            warm, self._warm = self._warm, []
            self._counts.destroyed += len(warm)
        for machine in warm:
            machine.destroy()
        for task_pool in list(self._task_pools.values()):
            _close(task_pool)
        self._watchdog.close()

    def _all_task_pools(self) -> list[TaskPool]:
        task_pools = [*self._task_pools.values(), *self._retiring]
        return [one for task_pool in task_pools for one in task_pool.and_contained]

    # Life cycle

    def _fill(self) -> None:
        makers = [
            task_pool.fill
            for task_pool in self._task_pools.values()
            for _ in range(self._limits.vms)
        ]
        makers += [self._warm_one] * self._limits.warm_vms
        if not makers:
            return
        try:
            with ThreadPoolExecutor(min(len(makers), _MAKERS), "walle-vm-maker") as threads:
                for future in [threads.submit(make) for make in makers]:
                    future.result()
        except BaseException:
            self.close()
            raise

    def _make_task_pool(self, program: CompiledProgram, quarantined: Iterable[str]) -> TaskPool:
        limits = self._limits
        is_private = program.isolation == "device"
        kind = DeviceTaskPool if is_private else SharedTaskPool
        size = limits.device_vms if is_private else limits.vms
        task_pool = kind(program, size, limits.max_runs, self._make, self._watchdog.forget)
        for device_id in quarantined:
            task_pool.quarantine.strike(device_id, program.limits.strikes)
        return task_pool

    def _contained(self, task_pool: TaskPool) -> TaskPool:
        is_inside = task_pool.program.isolation != "process" and self._can_be_inside()
        can_contain = is_inside and measures_here() is not None
        return task_pool.contain(self._make_contained) if can_contain else task_pool

    def _make_contained(self, program: CompiledProgram) -> Machine:
        machine = make_contained(program, self._limits.memory_bytes, self._services)
        self._watchdog.watch(machine, program.limits.wall_time_ms)
        return machine

    def _make(self, program: CompiledProgram) -> Machine:
        is_apart = program.isolation == "process" or not self._can_be_inside()
        machine = self._make_process(program) if is_apart else self._make_vm(program)
        cpu_ms = program.confinement.cpu_ms if is_apart else 0
        self._watchdog.watch(machine, program.limits.wall_time_ms, cpu_ms)
        return machine

    def _can_be_inside(self) -> bool:
        # If interpreters lack a feature, such as a way to stop runs, all tasks run in
        # processes, which keep every promise at a higher cost.
        if self._has_interpreters is None:
            try:
                ensure_supported()
            except VmStartError as error:
                if sys.platform == "win32":  # has neither
                    raise
                _log.warning("all tasks run with isolation: process, because %s", error)
                self._has_interpreters = False
            else:
                self._has_interpreters = True
        return self._has_interpreters

    def _make_process(self, program: CompiledProgram) -> Machine:
        # imported here, because it needs POSIX
        from walle_stream.vm.process.machine import ProcessMachine  # noqa: PLC0415

        return ProcessMachine(program, services=self._services)

    def _make_vm(self, program: CompiledProgram) -> Machine:
        with self._lock:
            machine = self._warm.pop() if self._warm else None
            if machine is not None:
                self._counts.created -= 1  # the task pool counts it
        if machine is None:
            machine = VirtualMachine(program, self._services)
        else:
            machine.bind(program)
            self._beside(self._warm_one)
        return machine

    def _beside(self, act: Callable[[], None]) -> bool:
        """Call ``act`` in a thread and return True; return False if the pool is closed."""
        thread = threading.Thread(target=act, name="walle-vm-maker", daemon=True)
        with self._lock:
            if not self._is_closed:
                self._makers = [maker for maker in self._makers if maker.is_alive()] + [thread]
                thread.start()
            return not self._is_closed

    def _warm_one(self) -> None:
        if not self._can_be_inside():
            return
        try:
            machine = VirtualMachine(services=self._services)
        except VmStartError as error:
            _log.warning("no warm VM could be made: %s", error)
            return
        with self._lock:
            is_kept = not self._is_closed and len(self._warm) < self._limits.warm_vms
            if is_kept:
                self._warm.append(machine)
                self._counts.created += 1
                self._counts.warmed += 1
        if not is_kept:
            machine.destroy()

    def _retire(self, task_pool: TaskPool) -> None:
        _close(task_pool)
        with self._lock:
            self._retiring.remove(task_pool)
            for one in task_pool.and_contained:
                self._counts.add(one.counts())

    def _count_stopped(self, _: Machine) -> None:
        with self._lock:
            self._counts.stopped += 1

    def _count_stuck(self, machine: Machine) -> None:
        with self._lock:
            self._counts.stuck += 1
        device_id, position = machine.run_at_hand or ("", 0)
        _log.error(
            "task %s is stuck inside C code and cannot be stopped",
            machine.task,
            extra={"device_id": device_id, "task": machine.task, "position": position},
        )
        if self._on_stuck is not None:
            self._on_stuck(machine.task, device_id)


def _compiled(program: TaskProgram | CompiledProgram) -> CompiledProgram:
    return program if isinstance(program, CompiledProgram) else compile_program(program)


def _close(task_pool: TaskPool) -> None:
    task_pool.close(CLOSE_TIMEOUT_S)  # from now on it makes no contained pool
    for one in task_pool.and_contained:
        one.close(CLOSE_TIMEOUT_S)


def _run_admitted(task_pool: TaskPool, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
    program, reason_of = task_pool.program, task_pool.quarantine.reason
    reasons = [reason_of(group[0]) for group in groups]
    admitted = [group for group, no in zip(groups, reasons, strict=True) if no is None]
    done = iter(task_pool.run(admitted) if admitted else ())
    results = []
    for (device_id, _, runs), reason in zip(groups, reasons, strict=True):
        if reason is None:
            results.append(next(done))
            continue
        message = f"{program.file}: task {program.task!r} is {reason}: correct it and restart"
        refused = RunResult(ok=False, error="Quarantined", message=message)
        results.append(GroupResult(device_id, {}, [refused] * len(runs)))
    return results
