"""The VMs of one task: idle VMs, their assignment to callers, and their end.

Place in the data flow: ``pool.VmPool`` has a task pool for each task, and gives it
the task's batches. The task's isolation policy selects the class:

- ``SharedTaskPool``: any VM of the task takes the whole batch.
- ``DeviceTaskPool``: every device has its own VM, up to a bound; the least recently
  used VM makes room.

Invariants:

- A VM is either idle in its pool or in use by one caller.
- A pool never has more VMs than its bound.
- A caller that removes a VM for good destroys it.
- A failed call is tried once more in a new VM, so that a task's results depend on
  its input alone. A second failure ends the caller's turn. In a process VM it
  quarantines the device whose runs cause it.
- Every result that leaves a pool was checked by ``outputs``.

Taking and returning a shared VM is the hot path: one list, whose ``pop`` and
``append`` are atomic. The lock is for waiting, waking and making VMs.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

import msgspec

from walle_stream.errors import FrameError, VmClosedError, VmCrashedError, VmError, VmStartError
from walle_stream.vm.counts import VmCounts
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.machine import Machine
from walle_stream.vm.outputs import run_checked
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.quarantine import Quarantine
from walle_stream.vm.results import DeviceGroup, GroupResult

_log = logging.getLogger(__name__)

STOPPED: Final = frozenset({"RunStopped", "StepsExceeded"})
"""Errors of stopped runs, by the name of the guest's class."""

_ATTEMPTS: Final = 2
_CLOSED: Final = "the VM pool is closed: open a new one"


class _Spent(threading.local):
    ms = 0.0


_spent: Final = _Spent()


def called_cpu_ms() -> float:
    """Return the CPU time of VMs on the calling thread's calls so far, in milliseconds."""
    return _spent.ms


class BlamedRunError(Exception):
    """A run ended its VM, and its device got a strike: the caller repeats the call."""


class TaskPool(ABC):
    """Common part of the policies; thread-safe."""

    def __init__(
        self,
        program: CompiledProgram,
        size: int,
        max_runs: int,
        make: Callable[[CompiledProgram], Machine],
        forget: Callable[[Machine], None],
        quarantine: Quarantine | None = None,
    ) -> None:
        """Start empty.

        A VM is replaced after ``max_runs`` runs (0: never). ``forget`` is called with a VM before
        its end.
        """
        self.program = program
        self.quarantine = quarantine or Quarantine(program.limits.strikes)
        self.machines: list[Machine] = []
        """All live VMs."""
        self._counts = VmCounts()  # calls and runs only of destroyed VMs
        self._size = size
        self._max_runs = max_runs
        self._looks_at_runs = program.limits.steps > 0 or max_runs > 0
        self._make = make
        self._forget = forget
        self._changed = threading.Condition()
        # First come, first served, under the lock. A waiting key gets a VM, or None for the
        # right to make one.
        self._waiters: deque[tuple[str, Future[Machine | None]]] = deque()
        self._calls_seen: dict[Machine, int] = {}
        self._count = 0
        self._is_closed = False
        self._contained: TaskPool | None = None
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make the container of idle VMs."""

    @abstractmethod
    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch; blocks until a VM is free and done.

        Raises:
            VmCrashedError: Two VMs in turn ended the call without its mark.
            FrameError: A value is not plain, or two results were malformed.
            VmStartError: A VM could not be replaced.
            VmClosedError: The pool is closed.
            BlamedRunError: A run ended its VM; run the batch again.
        """

    def contain(self, make: Callable[[CompiledProgram], Machine]) -> "TaskPool":
        """Return the pool of the task's process VMs, which is empty at first.

        It is closed after this pool, and shares its quarantine.

        Raises:
            VmClosedError: The pool is closed.
        """
        with self._changed:
            if self._is_closed:
                raise VmClosedError(_CLOSED)
            if self._contained is None:
                program = msgspec.structs.replace(self.program, isolation="process")
                self._contained = SharedTaskPool(
                    program, self._size, self._max_runs, make, self._forget, self.quarantine
                )
            return self._contained

    @property
    def and_contained(self) -> "list[TaskPool]":
        """This pool and the pool of the task's process VMs, if it has one."""
        return [self] if self._contained is None else [self, self._contained]

    def fill(self) -> None:  # noqa: B027 - a policy that makes VMs on demand has nothing to do
        """Make one VM before traffic, if the policy does so."""

    def sweep(self) -> None:
        """Destroy VMs that were idle since the last sweep, if the policy allows it."""
        seen, self._calls_seen = self._calls_seen, {m: m.calls for m in self.machines}
        for machine in list(self.machines):
            if seen.get(machine) == machine.calls and self._take_out(machine):
                self._destroy(machine)

    def close(self, timeout_s: float) -> None:
        """Destroy idle VMs and wait for the others, which are destroyed after their calls."""
        with self._changed:
            self._is_closed = True
            while self._waiters:
                self._waiters.popleft()[1].set_exception(VmClosedError(_CLOSED))
        self._destroy_idle()
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout_s)

    def counts(self) -> VmCounts:
        """Return the counters of the pool, live VMs included."""
        with self._changed:
            counts = msgspec.structs.replace(self._counts, bound=self._counts.created)
            counts.calls += sum(machine.calls for machine in self.machines)
            counts.runs += sum(machine.runs for machine in self.machines)
        counts.resets = 0 if self.program.shares_globals else counts.runs
        return counts

    @abstractmethod
    def _take_idle(self, key: str) -> Machine | None:
        """Return an idle VM that may serve a key; called under the lock."""

    @abstractmethod
    def _take_out(self, machine: Machine) -> bool:
        """Remove a VM from the idle ones, if it is idle and not needed."""

    @abstractmethod
    def _evict(self) -> Machine | None:
        """Remove an idle VM to make room for another key's; called under the lock."""

    @abstractmethod
    def _give(self, key: str, machine: Machine) -> None:
        """Take a VM back from a caller."""

    @abstractmethod
    def _destroy_idle(self) -> None:
        """Destroy all idle VMs, because the pool was closed."""

    def _take(self, key: str) -> Machine:
        evicted = turn = None
        with self._changed:
            if self._is_closed:
                raise VmClosedError(_CLOSED)
            machine = None if self._waiters else self._take_idle(key)
            if machine is not None:
                return machine
            if self._count < self._size:
                self._count += 1
            elif (evicted := self._evict()) is None:
                turn = Future[Machine | None]()
                self._waiters.append((key, turn))
                # a VM may have come back before its caller could see this waiter
                self._hand_over()
        if turn is not None and (machine := turn.result()) is not None:
            return machine
        if evicted is not None:
            self._destroy(evicted, keeps_place=True)
        return self._create()

    def _hand_over(self) -> None:
        # First come, first served, under the lock. Otherwise the returning caller, which is
        # awake, could take its VM again and again.
        while self._waiters:
            machine = self._take_idle(self._waiters[0][0])
            if machine is None:
                return
            self._waiters.popleft()[1].set_result(machine)

    def _free_place(self) -> None:
        # under the lock
        if self._waiters:
            self._waiters.popleft()[1].set_result(None)
        else:
            self._count -= 1
            self._changed.notify_all()

    def _call(self, key: str, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        return run_checked(self.program, groups, lambda batch: self._try(key, batch))

    def _try(self, key: str, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        packed = encode_groups(groups)
        failure: VmError | None = None
        for _ in range(_ATTEMPTS):
            machine = self._take(key)
            began_ms = machine.cpu_ms()
            try:
                results = machine.call(groups, packed)
                _spent.ms += max(machine.cpu_ms() - began_ms, 0.0)
            except (VmCrashedError, FrameError) as error:
                failure = error
                with self._changed:
                    self._counts.crashes += 1
                _log.warning("a VM is replaced: %s", error)
                blamed, was_killed = machine.crashed_run, machine.was_killed
                self._destroy(machine)
                if blamed is not None:
                    # a run that had to be killed would end the next VM, too; in other
                    # cases the VM may have ended for another reason
                    strikes = self.program.limits.strikes if was_killed else 1
                    self.quarantine.strike(blamed[0], strikes)
                    raise BlamedRunError(*blamed) from error
            except BaseException:
                self._destroy(machine)
                raise
            else:
                if machine.was_stopped or self._looks_at_runs:
                    self._look_after(key, machine, results)
                else:
                    self._give(key, machine)
                return results
        if self.program.isolation == "process":
            return self._search(key, groups)
        raise failure or VmError()

    def _search(self, key: str, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        # One device's runs make a process end or answer wrongly, whatever the process reports.
        # The device is found by bisection.
        if len(groups) == 1:
            device_id, _, runs = groups[0]
            self.quarantine.strike(device_id, self.program.limits.strikes)
            raise BlamedRunError(device_id, runs[0][0])
        middle = len(groups) // 2
        return self._try(key, groups[:middle]) + self._try(key, groups[middle:])

    def _look_after(self, key: str, machine: Machine, results: list[GroupResult]) -> None:
        machine.was_stopped = False
        for group in results:
            count = sum(run.error in STOPPED for run in group.runs)
            if count:
                self.quarantine.strike(group.device_id, count)
        if machine.is_worn or (self._max_runs and machine.runs >= self._max_runs):
            with self._changed:
                self._counts.recycled += 1
            self._destroy(machine)
        else:
            self._give(key, machine)

    def _create(self) -> Machine:
        # the caller has counted the VM already
        try:
            try:
                machine = self._make(self.program)
            except VmStartError:
                # a process may be killed at its start; a lasting error is raised again
                machine = self._make(self.program)
        except BaseException:
            with self._changed:
                self._free_place()
            raise
        with self._changed:
            self.machines.append(machine)
            self._counts.created += 1
        return machine

    def _destroy(self, machine: Machine, *, keeps_place: bool = False) -> None:
        self._forget(machine)
        try:
            machine.destroy()
        except Exception as error:  # noqa: BLE001 - a private API's failure must not hide the first error
            _log.warning("a VM of task %s could not be destroyed: %r", machine.task, error)
        with self._changed:
            self.machines.remove(machine)
            counts = self._counts
            counts.destroyed += 1
            counts.calls += machine.calls
            counts.runs += machine.runs
            if not keeps_place:
                self._free_place()


class SharedTaskPool(TaskPool):
    """VMs that take any device's runs, whose state comes with each call."""

    def _open(self) -> None:
        self.idle: list[Machine] = []
        """Idle VMs; the last one was used last."""

    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch; see ``TaskPool``."""
        return self._call("", groups)

    def fill(self) -> None:
        """Make one VM before traffic."""
        with self._changed:
            self._count += 1
        self._give("", self._create())

    def _take(self, key: str) -> Machine:
        try:
            return self.idle.pop()  # the hot path: no lock
        except IndexError:
            return super()._take(key)

    def _take_idle(self, key: str) -> Machine | None:  # noqa: ARG002 - the policy has one key
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def _take_out(self, machine: Machine) -> bool:
        with suppress(ValueError):  # a caller has it
            if len(self.machines) > 1:  # one always stays
                self.idle.remove(machine)
                return True
        return False

    def _evict(self) -> Machine | None:
        return None

    def _give(self, key: str, machine: Machine) -> None:  # noqa: ARG002 - same
        # a waiter joins the queue first, then checks the list; if it missed this VM, the
        # waiter is found here
        self.idle.append(machine)
        if self._waiters:
            with self._changed:
                self._hand_over()
        if self._is_closed:
            self._destroy_idle()

    def _destroy_idle(self) -> None:
        while (machine := self._take_idle("")) is not None:
            self._destroy(machine)


class DeviceTaskPool(TaskPool):
    """A VM per device, kept until another device needs its place."""

    def _open(self) -> None:
        self._idle: dict[str, Machine] = {}  # the least recently used VM comes first

    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch, device by device; see ``TaskPool``."""
        return [self._call(group[0], (group,))[0] for group in groups]

    def _take_idle(self, key: str) -> Machine | None:
        return self._idle.pop(key, None)

    def _take_out(self, machine: Machine) -> bool:
        with self._changed:
            for key, idle in self._idle.items():
                if idle is machine:
                    del self._idle[key]
                    return True
        return False

    def _evict(self) -> Machine | None:
        return self._idle.pop(next(iter(self._idle))) if self._idle else None

    def _give(self, key: str, machine: Machine) -> None:
        with self._changed:
            is_kept = not self._is_closed and key not in self._idle
            if is_kept:
                self._idle[key] = machine
                self._hand_over()
                # the longest waiter is another device, and this VM makes room for its VM
                is_kept = not self._waiters or self._idle.get(key) is not machine
                if not is_kept:
                    del self._idle[key]
        if not is_kept:
            self._destroy(machine)

    def _destroy_idle(self) -> None:
        with self._changed:
            machines = list(self._idle.values())
            self._idle.clear()
        for machine in machines:
            self._destroy(machine)
