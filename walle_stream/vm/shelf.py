"""The VMs of one task: which are idle, who takes which, when one goes.

Place in the data flow: ``pool.VmPool`` has a shelf per task and hands it the
task's batches. How VMs are shared out is the task's isolation policy:

- ``SharedShelf``: any VM of the task takes the whole batch.
- ``DeviceShelf``: every device has a VM of its own, up to a bound; the one not
  used for longest makes room.

Invariants: a VM is either idle on its shelf or in one caller's hands; a shelf
never has more VMs than its bound; whoever takes a VM off the shelf for good
destroys it; a call that failed is tried once more in a fresh VM, so that a
task's results depend on its input alone. Taking and giving back a shared VM is
the hot path: one list, whose ``pop`` and ``append`` are atomic; the lock is for
waiting, waking and making.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from walle_stream.errors import FrameError, VmClosedError, VmCrashedError, VmError
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.quarantine import Quarantine
from walle_stream.vm.results import DeviceGroup, GroupResult
from walle_stream.vm.watchdog import Watched

_log = logging.getLogger(__name__)

STOPPED: Final = frozenset({"RunStopped", "StepsExceeded"})
"""Errors of runs that were stopped, by the guest's class."""

_ATTEMPTS: Final = 2


class BlamedRunError(Exception):
    """A run ended its VM; its device's task is quarantined now: run the others again."""


class Machine(Watched, Protocol):
    """A VM as a shelf sees it: an interpreter's thread or a process."""

    serial: int
    """Which VM of this process."""
    calls: int
    """Batches that came back."""
    runs: int
    """Runs in those batches, failed ones included."""
    is_worn: bool
    """Whether it should not be used again after this call."""
    was_stopped: bool
    """Whether a run was asked to stop; whoever looks sets it back."""

    def stop_run(self, *, for_memory: bool = False) -> bool:
        """Ask the guest to stop the run at hand."""
        ...

    @property
    def crashed_run(self) -> tuple[str, int] | None:
        """Device and trigger position of the run that ended the VM, if it was one."""
        ...

    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch; blocks until the guest is done."""
        ...

    def destroy(self) -> None:
        """End it and wait for its end; may be called twice."""
        ...


class ShelfCounts(msgspec.Struct):
    """What a shelf has done."""

    created: int = 0
    destroyed: int = 0
    crashes: int = 0
    calls: int = 0
    """Of VMs that are gone."""
    runs: int = 0
    """Of VMs that are gone."""


class Shelf:
    """What the policies have in common. Thread-safe."""

    def __init__(
        self,
        program: CompiledProgram,
        size: int,
        max_runs: int,
        make: Callable[[CompiledProgram], Machine],
        forget: Callable[[Machine], None],
    ) -> None:
        """Start empty.

        Args:
            program: The task's.
            size: Most VMs.
            max_runs: A VM that made so many runs is replaced; 0 for never.
            make: Makes a bound VM.
            forget: Told of a VM before it is destroyed.
        """
        self.program = program
        self.quarantine = Quarantine(program.strikes)
        self.counts = ShelfCounts()
        self.machines: list[Machine] = []
        """All that are alive."""
        self._size = size
        self._max_runs = max_runs
        self._looks_at_runs = program.counts_steps or max_runs > 0
        self._make = make
        self._forget = forget
        self._changed = threading.Condition()
        self._count = 0
        self._is_closed = False

    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch; blocks until a VM is free and done.

        Args:
            groups: Runs by device.

        Returns:
            One result per group, in order.

        Raises:
            VmCrashedError: Two VMs in turn ended the call without its mark.
            FrameError: Values that are not plain, or two malformed results.
            VmStartError: A VM could not be replaced.
            VmClosedError: The shelf is closed.
            BlamedRunError: A run ended its VM, and may not run again.
        """
        raise NotImplementedError

    def fill(self) -> None:
        """Make one VM before traffic, where the policy knows how."""

    def sweep(self) -> None:
        """Destroy VMs that did nothing since the last sweep, where the policy says so."""

    def close(self, timeout_s: float) -> None:
        """Destroy idle VMs, wait for the others; those go when they come back.

        Args:
            timeout_s: Longest wait.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._destroy_idle()
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout_s)

    def _take(self, key: str) -> Machine:
        raise NotImplementedError

    def _give(self, key: str, machine: Machine) -> None:
        raise NotImplementedError

    def _destroy_idle(self) -> None:
        raise NotImplementedError

    def _wake_one(self) -> None:
        pass  # there is room for one more VM; under the lock

    def _call(self, key: str, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        packed = encode_groups(groups)
        failure: VmError | None = None
        for _ in range(_ATTEMPTS):
            machine = self._take(key)
            try:
                results = machine.call(groups, packed)
            except (VmCrashedError, FrameError) as error:
                failure = error
                self.counts.crashes += 1
                _log.warning("a VM is replaced: %s", error)
                blamed = machine.crashed_run
                self._destroy(machine)
                if blamed is not None:
                    # it would end the next one, too
                    self.quarantine.strike(blamed[0], self.program.strikes)
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
        raise failure or VmError()

    def _look_after(self, key: str, machine: Machine, results: list[GroupResult]) -> None:
        machine.was_stopped = False
        self._note_strikes(results)
        if machine.is_worn or (self._max_runs and machine.runs >= self._max_runs):
            self._destroy(machine)
        else:
            self._give(key, machine)

    def _note_strikes(self, results: list[GroupResult]) -> None:
        for group in results:
            count = sum(run.error in STOPPED for run in group.runs)
            if count:
                self.quarantine.strike(group.device_id, count)

    def _create(self) -> Machine:
        # the caller has counted it already
        try:
            machine = self._make(self.program)
        except BaseException:
            with self._changed:
                self._count -= 1
                self._wake_one()
                self._changed.notify_all()
            raise
        with self._changed:
            self.machines.append(machine)
            self.counts.created += 1
        return machine

    def _destroy(self, machine: Machine) -> None:
        self._forget(machine)
        try:
            machine.destroy()
        except Exception:  # noqa: BLE001 - a private API's failure must not hide what led here
            _log.warning("a VM of task %s could not be destroyed", machine.task, exc_info=True)
        with self._changed:
            self.machines.remove(machine)
            counts = self.counts
            counts.destroyed += 1
            counts.calls += machine.calls
            counts.runs += machine.runs
            self._count -= 1
            self._wake_one()
            self._changed.notify_all()

    def _closed(self) -> VmClosedError:
        return VmClosedError("the VM pool is closed: open a new one")


class _Waiter:
    __slots__ = ("_lock", "_machine")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._machine: Machine | None = None

    def wake(self, machine: Machine | None) -> None:
        self._machine = machine
        self._lock.release()

    def wait(self) -> Machine | None:
        # None: look again, there may be room for a new one
        self._lock.acquire()
        return self._machine


class SharedShelf(Shelf):
    """VMs that take any device's runs; state is handed in with them."""

    def __init__(
        self,
        program: CompiledProgram,
        size: int,
        max_runs: int,
        make: Callable[[CompiledProgram], Machine],
        forget: Callable[[Machine], None],
    ) -> None:
        """Start empty; see ``Shelf``."""
        super().__init__(program, size, max_runs, make, forget)
        self.idle: list[Machine] = []
        """The last one was used last."""
        self._waiters: deque[_Waiter] = deque()  # under the lock; first come, first served
        self._calls_seen: dict[Machine, int] = {}

    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch; see ``Shelf``."""
        return self._call("", groups)

    def fill(self) -> None:
        """Make one VM before traffic."""
        with self._changed:
            self._count += 1
        self._give("", self._create())

    def sweep(self) -> None:
        """Destroy VMs that did nothing since the last sweep; one always stays."""
        seen, self._calls_seen = self._calls_seen, {m: m.calls for m in self.machines}
        for machine in list(self.idle):
            if seen.get(machine) == machine.calls and len(self.machines) > 1:
                try:
                    self.idle.remove(machine)
                except ValueError:
                    continue  # somebody took it meanwhile
                self._destroy(machine)

    def _take(self, key: str) -> Machine:  # noqa: ARG002 - the policy has one key
        try:
            return self.idle.pop()
        except IndexError:
            pass
        while True:
            with self._changed:
                if self._is_closed:
                    raise self._closed()
                if self._count < self._size:
                    self._count += 1
                    break
                waiter = _Waiter()
                self._waiters.append(waiter)
                self._hand_over()  # it may have come back before anyone could see us wait
            machine = waiter.wait()
            if machine is not None:
                return machine
        return self._create()

    def _give(self, key: str, machine: Machine) -> None:  # noqa: ARG002 - same
        # Handed to whoever waits: from the list the giver, who is awake, would take it
        # again, and again. A waiter queues up, then looks at the list: if it did not
        # see this VM, it is seen here.
        self.idle.append(machine)
        if self._waiters:
            with self._changed:
                self._hand_over()
        if self._is_closed:
            self._destroy_idle()

    def _hand_over(self) -> None:
        while self._waiters:
            try:
                machine = self.idle.pop()
            except IndexError:
                return
            self._waiters.popleft().wake(machine)

    def _wake_one(self) -> None:
        if self._waiters:
            self._waiters.popleft().wake(None)

    def _destroy_idle(self) -> None:
        with self._changed:
            while self._waiters:
                self._wake_one()
        while True:
            try:
                machine = self.idle.pop()
            except IndexError:
                return
            self._destroy(machine)


class DeviceShelf(Shelf):
    """A VM per device, resident until others need its place."""

    def __init__(
        self,
        program: CompiledProgram,
        size: int,
        max_runs: int,
        make: Callable[[CompiledProgram], Machine],
        forget: Callable[[Machine], None],
    ) -> None:
        """Start empty; see ``Shelf``."""
        super().__init__(program, size, max_runs, make, forget)
        self._idle: dict[str, Machine] = {}  # the first one was not used for longest
        self._calls_seen: dict[Machine, int] = {}

    def run(self, groups: Sequence[DeviceGroup]) -> list[GroupResult]:
        """Run a batch, device by device; see ``Shelf``."""
        return [self._call(group[0], (group,))[0] for group in groups]

    def sweep(self) -> None:
        """Destroy VMs that did nothing since the last sweep."""
        seen, self._calls_seen = self._calls_seen, {m: m.calls for m in self.machines}
        with self._changed:
            idle = [
                device_id
                for device_id, machine in self._idle.items()
                if seen.get(machine) == machine.calls
            ]
            machines = [self._idle.pop(device_id) for device_id in idle]
        for machine in machines:
            self._destroy(machine)

    def _take(self, key: str) -> Machine:
        evicted = None
        with self._changed:
            while True:
                if self._is_closed:
                    raise self._closed()
                machine = self._idle.pop(key, None)
                if machine is not None:
                    return machine
                if self._count < self._size:
                    self._count += 1
                    break
                if self._idle:
                    evicted = self._idle.pop(next(iter(self._idle)))
                    self._count += 1  # the evicted one is counted until it is gone
                    break
                self._changed.wait()
        if evicted is not None:
            self._destroy(evicted)
        return self._create()

    def _give(self, key: str, machine: Machine) -> None:
        with self._changed:
            is_kept = not self._is_closed and key not in self._idle
            if is_kept:
                self._idle[key] = machine
                self._changed.notify()
        if not is_kept:
            self._destroy(machine)

    def _destroy_idle(self) -> None:
        with self._changed:
            machines = list(self._idle.values())
            self._idle.clear()
        for machine in machines:
            self._destroy(machine)
