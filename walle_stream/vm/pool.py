"""The pool of VMs: some per task, made before traffic, one per call in flight.

Place in the data flow: a device host calls ``run`` with all runs of one task in
a batch, grouped by device, and gets what they emitted and changed.

Invariants: a VM runs one program for life and one call at a time; a VM whose
call failed is destroyed and never used again; a call that failed is tried once
more in a fresh VM, so that a task's results depend on its input alone; any
thread may call: the VMs have threads of their own.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

import msgspec

from walle_stream.errors import FrameError, VmCrashedError, VmError
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.interpreters import ensure_supported
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.quarantine import Quarantine
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult
from walle_stream.vm.virtual_machine import VirtualMachine
from walle_stream.vm.watchdog import Watchdog, Watched

__all__ = ["DeviceGroup", "GroupResult", "RunResult", "VmCounts", "VmPool"]

_log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 10.0
"""Longest wait of ``close`` for calls that are running."""

STOPPED: Final = "RunStopped"
"""Error of a run that was stopped, by the guest's class."""

_ATTEMPTS: Final = 2
_MAKERS: Final = 4


type OnStuck = Callable[[str, str], None]
"""Called with the task and the device id of a run that cannot be stopped."""


class VmCounts(msgspec.Struct):
    """What a pool has done, for metrics."""

    created: int = 0
    """VMs made."""
    destroyed: int = 0
    """VMs destroyed; on Python 3.13 each leaves about 2.4 MB behind."""
    calls: int = 0
    """Batches that came back."""
    runs: int = 0
    """Runs in those batches, failed ones included."""
    crashes: int = 0
    """Calls that ended without a completion mark or with a malformed frame."""
    stopped: int = 0
    """Runs that took longer than their task's limit and were told to stop."""
    stuck: int = 0
    """Of these, runs that did not obey: they loop inside C code."""


class _Shelf:
    # the VMs of one task: idle ones, and how many there are in all

    def __init__(self, program: CompiledProgram) -> None:
        self.program = program
        self.quarantine = Quarantine(program.strikes)
        self.idle: list[VirtualMachine] = []
        self.count = 0


class VmPool:
    """VMs for a set of tasks. Thread-safe."""

    def __init__(
        self,
        tasks: Mapping[str, TaskProgram],
        size: int,
        on_stuck: OnStuck | None = None,
        quarantined: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Check and compile all programs, then make all VMs.

        Args:
            tasks: The programs by task name.
            size: VMs per task, ≥ 1: as many as threads call ``run`` at once.
            on_stuck: Told, in the watchdog's thread, of a run that cannot be
                stopped: its call never returns.
            quarantined: (task, device id) pairs that are out from the start.

        Raises:
            ScriptError: A script cannot be loaded.
            VmStartError: VMs cannot be made on this Python.
        """
        self._size = max(1, size)
        self._shelves = {name: _Shelf(compile_program(task)) for name, task in tasks.items()}
        for name, device_id in quarantined:
            shelf = self._shelves.get(name)
            if shelf is not None:
                shelf.quarantine.strike(device_id, shelf.program.strikes)
        self._on_stuck = on_stuck
        self._changed = threading.Condition()
        self._counts = VmCounts()
        self._is_closed = False
        self._watchdog = Watchdog(self._count_stopped, self._count_stuck)
        ensure_supported()
        shelves = [shelf for shelf in self._shelves.values() for _ in range(self._size)]
        try:
            with ThreadPoolExecutor(min(len(shelves), _MAKERS), "walle-vm-maker") as makers:
                for _ in makers.map(self._fill, shelves):
                    pass
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return the pool; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()

    @property
    def counts(self) -> VmCounts:
        """A copy of the counters."""
        with self._changed:
            return msgspec.structs.replace(self._counts)

    def run(self, task: str, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch of one task; blocks until a VM is free and done.

        A run that raises is a result, not an error: its own state changes and
        emits are undone, the others stand.

        Args:
            task: One of the pool's tasks.
            groups: Runs by device; plain values, borrowed until return.

        Returns:
            One result per group, in order, with one per run, in order.

        Raises:
            VmCrashedError: Two VMs in turn ended the call without its
                completion mark.
            FrameError: The batch holds values that are not plain, or two VMs
                in turn returned a malformed or oversized result.
            VmStartError: A destroyed VM could not be replaced.
            VmError: No such task, or the pool is closed.
        """
        if not groups:
            return []
        shelf = self._shelves.get(task)
        if shelf is None:
            raise VmError(f"task {task!r} is not in this pool: it has {sorted(self._shelves)}")
        if not shelf.quarantine.has_strikes:
            return self._run(shelf, groups)
        return self._run_admitted(shelf, groups)

    def close(self) -> None:
        """Destroy all VMs; may be called twice.

        Waits up to ``CLOSE_TIMEOUT_S`` for calls that are running; what still
        runs then is destroyed when it comes back.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for shelf in self._shelves.values():
            while machine := self._take_idle(shelf):
                self._destroy(shelf, machine)
        with self._changed:
            self._changed.wait_for(self._is_empty, CLOSE_TIMEOUT_S)
        self._watchdog.close()

    # Calls

    def _run_admitted(self, shelf: _Shelf, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        program, reason_of = shelf.program, shelf.quarantine.reason
        reasons = [reason_of(group[0]) for group in groups]
        admitted = [group for group, no in zip(groups, reasons, strict=True) if no is None]
        done = iter(self._run(shelf, admitted) if admitted else ())
        results = []
        for (device_id, _, runs), reason in zip(groups, reasons, strict=True):
            if reason is None:
                results.append(next(done))
                continue
            message = f"{program.file}: task {program.task!r} is {reason}: correct it and restart"
            refused = RunResult(ok=False, error="Quarantined", message=message)
            results.append(GroupResult(device_id, {}, [refused] * len(runs)))
        return results

    def _note_strikes(self, shelf: _Shelf, results: list[GroupResult]) -> None:
        for group in results:
            count = sum(run.error == STOPPED for run in group.runs)
            if count:
                shelf.quarantine.strike(group.device_id, count)

    def _run(self, shelf: _Shelf, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        packed = encode_groups(groups)
        failure: VmError = VmError()
        for _ in range(_ATTEMPTS):
            machine = self._take(shelf)
            try:
                results = machine.call(groups, packed)
            except (VmCrashedError, FrameError) as error:
                failure = error
                with self._changed:
                    self._counts.crashes += 1
                _log.warning("a VM is replaced: %s", error)
                self._destroy(shelf, machine)
            except BaseException:
                self._destroy(shelf, machine)
                raise
            else:
                self._give(shelf, machine)
                if machine.take_stopped():
                    self._note_strikes(shelf, results)
                with self._changed:
                    self._counts.calls += 1
                    self._counts.runs += sum(len(runs) for _, _, runs in groups)
                return results
        raise failure

    # Life cycle

    def _take(self, shelf: _Shelf) -> VirtualMachine:
        with self._changed:
            while True:
                if self._is_closed:
                    raise VmError("the VM pool is closed: open a new one")
                if shelf.idle:
                    return shelf.idle.pop()
                if shelf.count < self._size:
                    break
                self._changed.wait()
            shelf.count += 1
        return self._create(shelf)

    def _fill(self, shelf: _Shelf) -> None:
        with self._changed:
            shelf.count += 1
        self._give(shelf, self._create(shelf))

    def _create(self, shelf: _Shelf) -> VirtualMachine:
        # the caller has counted it already
        try:
            machine = VirtualMachine(shelf.program)
        except BaseException:
            with self._changed:
                shelf.count -= 1
                self._changed.notify_all()
            raise
        with self._changed:
            self._counts.created += 1
        self._watchdog.watch(machine, shelf.program.wall_time_ms)
        return machine

    def _give(self, shelf: _Shelf, machine: VirtualMachine) -> None:
        with self._changed:
            is_kept = not self._is_closed
            if is_kept:
                shelf.idle.append(machine)
                self._changed.notify_all()
        if not is_kept:
            self._destroy(shelf, machine)

    def _take_idle(self, shelf: _Shelf) -> VirtualMachine | None:
        with self._changed:
            return shelf.idle.pop() if shelf.idle else None

    def _destroy(self, shelf: _Shelf, machine: VirtualMachine) -> None:
        self._watchdog.forget(machine)
        try:
            machine.destroy()
        except Exception:  # noqa: BLE001 - a private API's failure must not hide what led here
            _log.warning(
                "a VM of task %s could not be destroyed", shelf.program.task, exc_info=True
            )
        with self._changed:
            shelf.count -= 1
            self._counts.destroyed += 1
            self._changed.notify_all()

    def _count_stopped(self, _: Watched) -> None:
        with self._changed:
            self._counts.stopped += 1

    def _count_stuck(self, machine: Watched) -> None:
        with self._changed:
            self._counts.stuck += 1
        device_id, position = machine.run_at_hand or ("", 0)
        _log.error(
            "task %s is stuck inside C code and cannot be stopped",
            machine.task,
            extra={"device_id": device_id, "task": machine.task, "position": position},
        )
        if self._on_stuck is not None:
            self._on_stuck(machine.task, device_id)

    def _is_empty(self) -> bool:
        return not any(shelf.count for shelf in self._shelves.values())
