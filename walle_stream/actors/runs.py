"""Runs of the tasks that a turn woke, and processing of their results."""

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Final

from walle_stream.actors.parts.containment import Containment
from walle_stream.actors.parts.part import Opening
from walle_stream.actors.parts.reports import Reports
from walle_stream.actors.turns.attempts import QUARANTINED, Attempts, FailurePolicy
from walle_stream.actors.turns.calling import Call, Called, Calling
from walle_stream.actors.turns.dead_letters import run_dead_letter
from walle_stream.actors.turns.origins import RunOrigins
from walle_stream.actors.turns.turn import Done
from walle_stream.clock import wall_ms
from walle_stream.faults import crash_point
from walle_stream.stream.commands import Runs, RunTask
from walle_stream.vm.guest.state import merge
from walle_stream.vm.results import DeviceGroup, GroupResult, RunInput, RunResult
from walle_stream.wire.rows import TaskCounts, add_tasks

_log = logging.getLogger(__name__)
_script_log = logging.getLogger("walle_stream.script")

RETURNED: Final = "returned a value, which is ignored: use ctx.emit"
"""Warning about a task whose script returns features instead of emitting them."""

_MESSAGE_MAX: Final = 300  # every commit writes it


class TaskRuns:
    """Runs of one partition. One thread, the device host's; blocks on VMs and pauses."""

    def __init__(
        self,
        opening: Opening,
        containment: Containment,
        reports: Reports | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Use an opened partition; tests replace ``wait``."""
        self._warned = opening.plan.warned
        self._failed: set[str] = set()  # tasks whose first failure was reported
        self._reports = reports
        self._containment = containment
        self._states = opening.states
        self._on_error = opening.sets.on_error
        self._wait = wait or Flag().wait

    def run(self, runs: Sequence[Runs], places: RunOrigins | None = None) -> Calling[Done]:
        """Run tasks in the order in which the turn's batches woke them, with a call per program.

        Raises:
            WalleError: VMs failed; nothing may be committed.
        """
        done = Done()
        failed: list[tuple[RunTask, RunResult, int]] = []
        crash_point("vm.before")
        self._containment.mark()
        together = _together(runs)
        calls = [
            Call(program, self._groups(task, by_device), self._containment.is_doubtful)
            for (task, program), by_device in together.items()
        ]
        called = yield calls
        for (task, _), call, outcome in zip(together, calls, called, strict=True):
            failed += yield from self._take(task, call, outcome, done)
        crash_point("vm.after")
        done.dead_letters += [
            run_dead_letter(run, result, tried, places.of_run(run) if places else "")
            for run, result, tried in failed
        ]
        return done

    def _groups(self, task: str, by_device: Mapping[str, list[RunInput]]) -> list[DeviceGroup]:
        states_of = self._states.of_task(task)
        return [
            (device_id, states_of(device_id), own_runs) for device_id, own_runs in by_device.items()
        ]

    def _take(
        self, task: str, call: Call, called: Called, done: Done
    ) -> Calling[list[tuple[RunTask, RunResult, int]]]:
        """Process a call's results; return the runs that leave a letter, with their attempts."""
        program, results = call.program, called.results
        on_error = self._on_error.get(program) or FailurePolicy()
        attempts: dict[tuple[str, int], int] = {}
        if on_error.attempts > 1:
            results = yield from Attempts(call, on_error, self._wait).run(results, attempts)
        if self._reports is not None:
            self._reports.add(program, results, called.took_ms)
        changed: dict[str, dict[str, bytes | None]] = {}
        failures: list[tuple[RunTask, RunResult, int]] = []
        for (device_id, state, own_runs), group in zip(call.groups, results, strict=True):
            if group.state:
                merge(state, group.state)
                changed[device_id] = group.state
            for index, (own_run, result) in enumerate(zip(own_runs, group.runs, strict=True)):
                if result.ok and not (result.emits or result.calls or result.logs):
                    continue
                position, clock_ms, page = own_run
                run = RunTask(device_id, task, position, clock_ms, page, program)
                if result.logs:
                    _log_script(run, result.logs)
                if result.ok:
                    done.emitted.append((run, result.emits))
                    if result.calls:
                        done.calls.append((run, result.calls))
                else:
                    tried = int(attempts.get((device_id, index), result.error != QUARANTINED))
                    _log_failure(run, result, tried)
                    failures.append((run, result, tried))
        done.changed.append((task, changed))
        done.failures += len(failures)
        counts = self._counts(task, results, [result for _, result, _ in failures])
        done.tasks = add_tasks(done.tasks, {task: counts})
        return failures if on_error.leaves_letter else []

    def _counts(
        self, task: str, results: Sequence[GroupResult], failures: Sequence[RunResult]
    ) -> TaskCounts:
        returned = sum(group.returned for group in results)
        if returned and task not in self._warned:
            self._warned.add(task)
            _log.warning("task %r %s", task, RETURNED)
        executed = [failure for failure in failures if failure.error != QUARANTINED]
        first = ""
        if executed and task not in self._failed:
            self._failed.add(task)
            first = executed[0].message[:_MESSAGE_MAX]
        return TaskCounts(
            runs=sum(len(group.runs) for group in results),
            failures=len(failures),
            refused=len(failures) - len(executed),
            returned=returned,
            failed_ms=wall_ms() if first else 0,
            failure=first,
        )


def _together(parts: Sequence[Runs]) -> Runs:
    if len(parts) == 1:
        return parts[0]
    together: Runs = {}
    for runs in parts:
        for program, by_device in runs.items():
            own = together.setdefault(program, {})
            for device_id, own_runs in by_device.items():
                # runs of different parts stay separate, for ``Origins``
                own[device_id] = [*own[device_id], *own_runs] if device_id in own else own_runs
    return together


def _log_failure(run: RunTask, result: RunResult, attempts: int) -> None:
    ids = {"device_id": run.device_id, "task": run.task, "position": run.position}
    times = f" {attempts} times" if attempts > 1 else ""
    _log.info("a run failed%s: %s", times, result.message, extra=ids)


def _log_script(run: RunTask, lines: list[tuple[str, str]]) -> None:
    ids = {"device_id": run.device_id, "task": run.task, "position": run.position}
    for level, text in lines:
        _script_log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text, extra=ids)
