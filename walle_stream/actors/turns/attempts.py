"""Retries of failed runs, by their task's policy.

A failed run is retried with the same input: the same state, page, clock and seed. Later runs of the
same device must see the state that it leaves. The device's runs of that task are therefore repeated
one by one, from the state before the first of them; nothing was committed. Results that depend on
the input alone are always the same, even after a crash.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from walle_stream.actors.turns.calling import Call, Calling
from walle_stream.vm.guest.state import merge
from walle_stream.vm.results import DeviceGroup, GroupResult, RunResult

_log = logging.getLogger(__name__)

PAUSE_MAX_MS: Final = 2_000
"""Maximum pause between two attempts: the partition waits for it."""

QUARANTINED: Final = "Quarantined"
"""Error of a run that was not allowed to start."""


class FailurePolicy(msgspec.Struct, frozen=True):
    """Policy for a task's failed runs."""

    attempts: int = 1
    """Number of runs in all, ≥ 1."""
    backoff_ms: int = 100
    """Pause before the second run, doubled for each further one."""
    leaves_letter: bool = True

    def pause_ms(self, failures: int) -> int:
        """Return the pause after a number of failures (≥ 1)."""
        return min(self.backoff_ms << (failures - 1), PAUSE_MAX_MS)


class _DeviceRuns:
    def __init__(self, group: DeviceGroup, failed: int, first: GroupResult) -> None:
        self.device_id, state, self.runs = group
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

    def record(self, outcome: GroupResult, attempts: int) -> None:
        index, [result] = self.index, outcome.runs
        if result.ok:
            merge(self.state, outcome.state)
            self.changed.update(outcome.state)
            self.results.append(result)
            return
        if result.error == QUARANTINED:
            if index < self._failed:
                # its strikes caused the quarantine: the runs before it succeeded, and stay so
                self.results = self._first.runs
                self.changed = self._first.state
            else:
                # the cause of the quarantine says more than the quarantine itself
                self.results.append(self.last.get(index, result))
            return
        self.failures[index] = self.failures.get(index, 0) + 1
        self.last[index] = result
        if self.failures[index] >= attempts:
            self.results.append(result)


class Attempts:
    """Retry of the failed runs of one call."""

    def __init__(
        self, call: Call, on_error: FailurePolicy, wait: Callable[[float], object]
    ) -> None:
        """Begin with a finished call, and its task's policy."""
        self._call = call
        self._on_error = on_error
        self._wait = wait

    def run(
        self, first: list[GroupResult], attempts: dict[tuple[str, int], int]
    ) -> Calling[list[GroupResult]]:
        """Return the results, replaced for devices with failed runs."""
        queues = {}
        for at, (runs, group) in enumerate(zip(self._call.groups, first, strict=True)):
            failed = _first_failed(group.runs)
            if failed is not None:
                queues[at] = _DeviceRuns(runs, failed, group)
        waiting = list(queues.values())
        while waiting:
            pauses = [self._on_error.pause_ms(n) for n in map(_failures, waiting) if n]
            if pauses:
                _log.info("task %s: %d runs are retried", self._call.program, len(pauses))
                self._wait(max(pauses) / 1000.0)
            [called] = yield [self._call._replace(groups=[queue.group() for queue in waiting])]
            for queue, group in zip(waiting, called.results, strict=True):
                queue.record(group, self._on_error.attempts)
            waiting = [queue for queue in waiting if not queue.is_done]
        results = list(first)
        for at, queue in queues.items():
            results[at] = GroupResult(queue.device_id, queue.changed, queue.results)
            attempts.update({(queue.device_id, index): n for index, n in queue.failures.items()})
        return results


def _failures(queue: _DeviceRuns) -> int:
    return queue.failures.get(queue.index, 0)


def _first_failed(runs: Sequence[RunResult]) -> int | None:
    for index, result in enumerate(runs):
        if not result.ok and result.error != QUARANTINED:
            return index
    return None
