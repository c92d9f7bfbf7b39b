"""Tries failed runs again, as their task says.

A run that failed is tried again with the same input: the same state, page, clock and seed. So
that the later runs of its device see what it leaves, the device's runs of that task are taken
one by one then, from the state before the first of them; nothing was committed. What only the
input decides gives the same whenever it is done, also after a death.
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
"""Longest pause between two attempts: the partition waits for it."""

QUARANTINED: Final = "Quarantined"
"""Error of a run that was not let begin."""


class FailurePolicy(msgspec.Struct, frozen=True):
    """What becomes of a task's run that fails."""

    attempts: int = 1
    """Runs in all, ≥ 1."""
    backoff_ms: int = 100
    """Pause before the second, doubled for each further one."""
    leaves_letter: bool = True

    def pause_ms(self, failures: int) -> int:
        """Return how long to wait after a number of failures (≥ 1)."""
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


class Attempts:
    """Tries the runs of one call again, where some of them failed."""

    def __init__(
        self, call: Call, on_error: FailurePolicy, wait: Callable[[float], object]
    ) -> None:
        """Begin with a call that was made, and its task's policy."""
        self._call = call
        self._on_error = on_error
        self._wait = wait

    def run(
        self, first: list[GroupResult], attempts: dict[tuple[str, int], int]
    ) -> Calling[list[GroupResult]]:
        """Return the results, with those of devices with failed runs made anew."""
        queues = {}
        for at, (runs, group) in enumerate(zip(self._call.groups, first, strict=True)):
            failed = _first_failed(group.runs)
            if failed is not None:
                queues[at] = _DeviceRuns(runs, failed, group)
        waiting = list(queues.values())
        while waiting:
            pauses = [self._on_error.pause_ms(n) for n in map(_failures, waiting) if n]
            if pauses:
                _log.info("task %s: %d runs are tried again", self._call.program, len(pauses))
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
