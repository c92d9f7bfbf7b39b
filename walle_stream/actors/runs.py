"""Runs the tasks that a turn woke, and takes their results apart."""

import logging
from collections.abc import Callable, Sequence
from threading import Event as Flag
from typing import Final

from walle_stream.actors.attempts import QUARANTINED, Attempts, FailurePolicy
from walle_stream.actors.calling import Call, Called, Calling
from walle_stream.actors.dead_letters import run_dead_letter
from walle_stream.actors.parts.containment import Containment
from walle_stream.actors.parts.part import Opening
from walle_stream.actors.parts.reports import Reports
from walle_stream.actors.places import Places
from walle_stream.actors.task_states import apply_changes
from walle_stream.actors.turn import Done
from walle_stream.clock import wall_ms
from walle_stream.faults import crash_point
from walle_stream.stream.commands import RunTask
from walle_stream.vm.pool import DeviceGroup, GroupResult, RunResult
from walle_stream.wire.rows import TaskCounts, add_tasks

_log = logging.getLogger(__name__)
_script_log = logging.getLogger("walle_stream.script")

RETURNED: Final = "returned a value, which is ignored: use ctx.emit"
"""What is said of a task whose script returns features instead of emitting them."""

_MESSAGE_MAX: Final = 300  # of what each commit writes anew


class TaskRuns:
    """Runs of one partition. One thread, the device host's; blocks on VMs and pauses."""

    def __init__(
        self,
        opening: Opening,
        containment: Containment,
        reports: Reports | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Take over an opened partition.

        Args:
            opening: Has its devices' states, and what tasks say of failures.
            containment: Of the partition.
            reports: Told what runs did; nobody where None.
            wait: Waits for seconds; in tests another.
        """
        self._warned = opening.plan.warned
        self._failed: set[str] = set()  # tasks whose first failure was told
        self._reports = reports
        self._containment = containment
        self._states = opening.states
        self._on_error = opening.sets.on_error
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
        self._containment.take()
        by_program = _by_program(runs)
        calls = [
            Call(program, self._groups(by_device), self._containment.is_doubtful)
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
            found = yield from Attempts(call, on_error, self._wait).run(found, attempts)
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
                tried = attempts.get((device_id, index), result.error != QUARANTINED)
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
        executed = [each for each in failures if each.error != QUARANTINED]
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


def _task_of(by_device: dict[str, list[RunTask]]) -> str:
    return next(iter(by_device.values()))[0].task


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
