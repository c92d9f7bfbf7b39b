"""Runs the tasks that a turn woke, and tries again what its task says.

A run that failed is tried again with the same input: the same state, page, clock and seed. So
that the later runs of its device see what it leaves, the device's runs of that task are taken
one by one then, from the state before the first of them; nothing was committed. What only the
input decides gives the same whenever it is done, also after a death.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Final

import msgspec

from walle_stream.actors.calling import Call, Called, Calling
from walle_stream.actors.dead_letters import run_dead_letter
from walle_stream.actors.doubt import Doubt
from walle_stream.actors.places import Places
from walle_stream.actors.reports import QUARANTINED, RunReports
from walle_stream.actors.task_states import TaskStates, apply_changes
from walle_stream.actors.turn import Done
from walle_stream.clock import wall_ms
from walle_stream.faults import crash_point
from walle_stream.stream.commands import RunTask
from walle_stream.vm.pool import DeviceGroup, GroupResult, RunResult
from walle_stream.wire.rows import TaskCounts, add_tasks

_log = logging.getLogger(__name__)
_script_log = logging.getLogger("walle_stream.script")

PAUSE_MAX_MS: Final = 2_000
"""Longest pause between two attempts: the partition waits for it."""

RETURNED: Final = "returned a value, which is ignored: use ctx.emit"
"""What is said of a task whose script returns features instead of emitting them."""

_NO_RUN: Final = QUARANTINED
_MESSAGE_MAX: Final = 300  # of what each commit writes anew


class FailurePolicy(msgspec.Struct, frozen=True):
    """What becomes of a task's run that fails."""

    attempts: int = 1
    """Runs in all, ≥ 1."""
    backoff_ms: int = 100
    """Pause before the second, doubled for each further one."""
    leaves_letter: bool = True
    """Whether a run that failed for good is a dead letter."""

    def pause_ms(self, failures: int) -> int:
        """Return how long to wait.

        Args:
            failures: Attempts that were made, ≥ 1.
        """
        return min(self.backoff_ms << (failures - 1), PAUSE_MAX_MS)


class TaskRuns:
    """Runs of one partition. One thread, the device host's; blocks on VMs and pauses."""

    def __init__(
        self,
        states: TaskStates,
        on_error: Mapping[str, FailurePolicy],
        doubt: Doubt,
        wait: Callable[[float], object] | None = None,
        reports: RunReports | None = None,
        warned: set[str] | None = None,
    ) -> None:
        """Take over what an opened partition has.

        Args:
            states: Of the partition's devices.
            on_error: By program; ``FailurePolicy()`` for any other.
            doubt: About the partition.
            wait: Waits for seconds; in tests another.
            reports: Told what runs did; nobody where None.
            warned: Tasks whose script was warned of; shared, so that each is once.
        """
        self._warned = set() if warned is None else warned
        self._failed: set[str] = set()  # tasks whose first failure was told
        self._reports = reports
        self._doubt = doubt
        self._states = states
        self._on_error = on_error
        self._wait = wait or Flag().wait

    def run(self, runs: Sequence[RunTask], places: Places | None = None) -> Calling[Done]:
        """Run tasks, a call per program.

        Args:
            runs: Woken by the turn.
            places: Of the turn, for letters of runs that fail.

        Raises:
            WalleError: VMs failed; nothing may be committed.
        """
        done = Done()
        failed: list[tuple[RunTask, RunResult, int]] = []
        crash_point("vm.before")
        self._doubt.take()
        by_program = _by_program(runs)
        calls = [
            Call(program, self._groups(by_device), self._doubt.is_doubtful)
            for program, by_device in by_program.items()
        ]
        called = yield calls
        for call, found in zip(calls, called, strict=True):
            failed += yield from self._take(call, found, by_program[call.program], done)
        crash_point("vm.after")
        if failed:
            indices = {id(run): index for index, run in enumerate(runs)}
            done.dead_letters += [
                run_dead_letter(
                    run, result, tried, places.of_run(indices[id(run)], run) if places else ""
                )
                for run, result, tried in failed
            ]
        return done

    def _groups(self, by_device: dict[str, list[RunTask]]) -> list[DeviceGroup]:
        states_of = self._states.of_task(_task_of(by_device))
        return [
            (
                device_id,
                states_of(device_id),
                [(run.position, run.clock_ms, run.page) for run in device_runs],
            )
            for device_id, device_runs in by_device.items()
        ]

    def _take(
        self, call: Call, called: Called, by_device: dict[str, list[RunTask]], done: Done
    ) -> Calling[list[tuple[RunTask, RunResult, int]]]:
        """Take a call's results; returns the runs that leave a letter, and how often tried."""
        program, groups = call.program, call.groups
        on_error = self._on_error.get(program) or FailurePolicy()
        task, found = _task_of(by_device), called.found
        attempts: dict[tuple[str, int], int] = {}
        if on_error.attempts > 1:
            found = yield from _Again(call, on_error, self._wait).run(found, attempts)
        if self._reports is not None:
            self._reports.add(program, found, called.took_ms)
        changed: dict[str, dict[str, bytes | None]] = {}
        failed = []
        failures: list[RunResult] = []
        for given, group in zip(groups, found, strict=True):
            device_id, state, _ = given
            if group.state:
                apply_changes(state, group.state)
                changed[device_id] = group.state
            for index, (run, result) in enumerate(
                zip(by_device[device_id], group.runs, strict=True)
            ):
                if result.logs:
                    _log_script(run, result.logs)
                if result.ok:
                    done.emitted.append((run, result.emits))
                    if result.calls:
                        done.calls.append((run, result.calls))
                    continue
                failures.append(result)
                tried = attempts.get((device_id, index), result.error != _NO_RUN)
                _log_failure(run, result, int(tried))
                if on_error.leaves_letter:
                    failed.append((run, result, int(tried)))
        done.changed.append((task, changed))
        done.failures += len(failures)
        counts = self._counts(task, found, failures)
        done.tasks = add_tasks(done.tasks, {task: counts})
        return failed

    def _counts(
        self, task: str, found: Sequence[GroupResult], failures: Sequence[RunResult]
    ) -> TaskCounts:
        returned = sum(group.returned for group in found)
        if returned and task not in self._warned:
            self._warned.add(task)
            _log.warning("task %r %s", task, RETURNED)
        executed = [each for each in failures if each.error != _NO_RUN]
        first = ""
        if executed and task not in self._failed:
            self._failed.add(task)
            first = executed[0].message[:_MESSAGE_MAX]
        return TaskCounts(
            runs=sum(len(group.runs) for group in found),
            failures=len(failures),
            refused=len(failures) - len(executed),
            returned=returned,
            failed_ms=wall_ms() if first else 0,
            failure=first,
        )


class _Lane:
    """Runs of one device that are taken one by one."""

    def __init__(self, given: DeviceGroup, failed: int, first: GroupResult) -> None:
        self.device_id, state, self.runs = given
        self.state = dict(state)
        self.changed: dict[str, bytes | None] = {}
        self.results: list[RunResult] = []
        self.failures = {failed: 1}  # by index of the run
        self.last = {failed: first.runs[failed]}
        self._failed = failed
        self._first = first

    @property
    def is_done(self) -> bool:
        return len(self.results) == len(self.runs)

    @property
    def index(self) -> int:
        return len(self.results)

    def group(self) -> DeviceGroup:
        return self.device_id, self.state, self.runs[self.index : self.index + 1]

    def take(self, found: GroupResult, attempts: int) -> None:
        index, [result] = self.index, found.runs
        if result.ok:
            apply_changes(self.state, found.state)
            self.changed.update(found.state)
            self.results.append(result)
            return
        if result.error == _NO_RUN:
            if index < self._failed:
                # its strikes were enough: what came before it has succeeded, and stays so
                self.results = self._first.runs
                self.changed = self._first.state
            else:
                # what led to the quarantine says more than that there is one
                self.results.append(self.last.get(index, result))
            return
        self.failures[index] = self.failures.get(index, 0) + 1
        self.last[index] = result
        if self.failures[index] >= attempts:
            self.results.append(result)


class _Again:
    """Tries the runs of one call again, where some of them failed."""

    def __init__(
        self, call: Call, on_error: FailurePolicy, wait: Callable[[float], object]
    ) -> None:
        self._call = call
        self._on_error = on_error
        self._wait = wait

    def run(
        self, found: list[GroupResult], attempts: dict[tuple[str, int], int]
    ) -> Calling[list[GroupResult]]:
        """Return the results, with those of devices with failed runs made anew."""
        lanes = {}
        for place, (given, group) in enumerate(zip(self._call.groups, found, strict=True)):
            failed = _first_failed(group.runs)
            if failed is not None:
                lanes[place] = _Lane(given, failed, group)
        waiting = list(lanes.values())
        while waiting:
            pauses = [self._on_error.pause_ms(n) for n in map(_failures, waiting) if n]
            if pauses:
                _log.info("task %s: %d runs are tried again", self._call.program, len(pauses))
                self._wait(max(pauses) / 1000.0)
            [done] = yield [self._call._replace(groups=[lane.group() for lane in waiting])]
            for lane, group in zip(waiting, done.found, strict=True):
                lane.take(group, self._on_error.attempts)
            waiting = [lane for lane in waiting if not lane.is_done]
        results = list(found)
        for place, lane in lanes.items():
            results[place] = GroupResult(lane.device_id, lane.changed, lane.results)
            attempts.update({(lane.device_id, index): n for index, n in lane.failures.items()})
        return results


def _task_of(by_device: dict[str, list[RunTask]]) -> str:
    return next(iter(by_device.values()))[0].task


def _failures(lane: _Lane) -> int:
    return lane.failures.get(lane.index, 0)


def _first_failed(runs: Sequence[RunResult]) -> int | None:
    for index, result in enumerate(runs):
        if not result.ok and result.error != _NO_RUN:
            return index
    return None


def _by_program(runs: Sequence[RunTask]) -> dict[str, dict[str, list[RunTask]]]:
    by_program: dict[str, dict[str, list[RunTask]]] = {}
    for run in runs:
        by_device = by_program.get(run.program)
        if by_device is None:
            by_device = by_program[run.program] = {}
        device_runs = by_device.get(run.device_id)
        if device_runs is None:
            by_device[run.device_id] = [run]
        else:
            device_runs.append(run)
    return by_program


def _log_failure(run: RunTask, result: RunResult, attempts: int) -> None:
    ids = {"device_id": run.device_id, "task": run.task, "position": run.position}
    times = f" {attempts} times" if attempts > 1 else ""
    _log.info("a run failed%s: %s", times, result.message, extra=ids)


def _log_script(run: RunTask, lines: list[tuple[str, str]]) -> None:
    ids = {"device_id": run.device_id, "task": run.task, "position": run.position}
    for level, text in lines:
        _script_log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text, extra=ids)
