"""Calls of VMs that the turns of several partitions make together.

A turn asks for calls by yielding them, and goes on when it is sent their results. So the
turns of one host run side by side in its thread, and what they ask for at the same time
is one call of the pool for each program: partitions cost no calls of their own.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol

from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError
from walle_stream.vm.results import DeviceGroup, GroupResult


class Call(NamedTuple):
    """Runs of one program that a turn asks for."""

    program: str
    groups: list[DeviceGroup]
    is_doubtful: bool


class Called(NamedTuple):
    """What came back: a result per group, in order."""

    results: list[GroupResult]
    took_ms: float
    """Of the whole call, as many of its milliseconds as it has of its runs."""


type Calling[T] = Generator[list[Call], list[Called], T]
"""A turn; a partition's devices are its own, so no two ask for runs of one device."""


class Runner(Protocol):
    """What runs calls: ``vm.pool.VmPool``."""

    def run(self, task: str, groups: list[DeviceGroup], *, is_doubtful: bool) -> list[GroupResult]:
        """Run a batch of one program; see ``VmPool.run``."""


def run_alone[T](pool: Runner, turn: Calling[T]) -> T:
    """Run one turn; blocks.

    Raises:
        WalleError: The turn's.
    """
    result = run_together(pool, {0: turn})[0]
    if isinstance(result, WalleError):
        raise result
    return result


def run_together[K, T](pool: Runner, turns: Mapping[K, Calling[T]]) -> dict[K, T | WalleError]:
    """Run turns to their ends; blocks.

    Returns by turn what it returned, or what it failed with: the others are none the worse. A call
    that fails is a failure of every turn that has a part in it.
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
