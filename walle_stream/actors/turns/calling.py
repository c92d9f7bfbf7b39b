"""Calls of VMs that the turns of several partitions make together.

A turn requests calls by yielding them, and continues when it receives their results. The turns of
one host thus run side by side in its thread. Their simultaneous requests become one call of the
pool per program, so that more partitions cost no more calls.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol

from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError
from walle_stream.vm.results import DeviceGroup, GroupResult


class Call(NamedTuple):
    """Runs of one program that a turn requests."""

    program: str
    groups: list[DeviceGroup]
    is_doubtful: bool


class Called(NamedTuple):
    """Results of a call: one per group, in order."""

    results: list[GroupResult]
    took_ms: float
    """Milliseconds of the whole call, in proportion to its share of the runs."""


type Calling[T] = Generator[list[Call], list[Called], T]
"""A turn; partitions share no devices, so no two turns request runs of one device."""


class Runner(Protocol):
    """Interface for running calls: ``vm.pool.VmPool``."""

    def run(self, task: str, groups: list[DeviceGroup], *, is_doubtful: bool) -> list[GroupResult]:
        """Run a batch of one program; see ``VmPool.run``."""


def run_alone[T](pool: Runner, turn: Calling[T]) -> T:
    """Run one turn; blocks.

    Raises:
        WalleError: The turn raised it.
    """
    result = run_together(pool, {0: turn})[0]
    if isinstance(result, WalleError):
        raise result
    return result


def run_together[K, T](pool: Runner, turns: Mapping[K, Calling[T]]) -> dict[K, T | WalleError]:
    """Run turns to their ends; blocks.

    Returns the result or the error of each turn; an error of one turn does not affect the others. A
    failed call is a failure of every turn with runs in it.
    """
    results: dict[K, T | WalleError] = {}
    waiting: dict[K, list[Call]] = {}

    def go_on(name: K, answer: list[Called] | WalleError | None) -> None:
        turn = turns[name]
        try:
            if isinstance(answer, WalleError):
                waiting[name] = turn.throw(answer)
            else:
                waiting[name] = next(turn) if answer is None else turn.send(answer)
        except StopIteration as end:
            results[name] = end.value
        except WalleError as error:
            results[name] = error

    for name in turns:
        go_on(name, None)
    while waiting:
        calls, waiting = waiting, {}
        answers = _answers(pool, calls)
        for name in calls:
            go_on(name, answers[name])
    return results


def _answers[K](
    pool: Runner, waiting: Mapping[K, list[Call]]
) -> dict[K, list[Called] | WalleError]:
    together: dict[tuple[str, bool], list[tuple[K, int, Call]]] = {}
    for name, calls in waiting.items():
        for index, call in enumerate(calls):
            together.setdefault((call.program, call.is_doubtful), []).append((name, index, call))
    by_turn: dict[K, dict[int, Called]] = {name: {} for name in waiting}
    failed: dict[K, WalleError] = {}
    for (program, is_doubtful), parts in together.items():
        began_ms = monotonic_ms()
        groups = [group for _, _, call in parts for group in call.groups]
        try:
            results = pool.run(program, groups, is_doubtful=is_doubtful)
        except WalleError as error:
            failed.update((name, error) for name, _, _ in parts)
            continue
        took_ms = monotonic_ms() - began_ms
        each_ms = took_ms / max(sum(len(group[2]) for group in groups), 1)
        start = 0
        for name, index, call in parts:
            own = results[start : start + len(call.groups)]
            start += len(call.groups)
            runs = sum(len(group[2]) for group in call.groups)
            by_turn[name][index] = Called(own, each_ms * runs)
    return {
        name: failed[name] if name in failed else [parts[at] for at in range(len(parts))]
        for name, parts in by_turn.items()
    }
