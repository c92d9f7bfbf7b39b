"""Turns side by side share calls; each gets its own results, and fails alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walle_stream.actors.turns.calling import Call, Called, run_alone, run_together
from walle_stream.errors import StoreError, VmCrashedError
from walle_stream.vm.results import GroupResult, RunResult

pytestmark = pytest.mark.actors


class Pool:
    """Answers every run with its program, device and position; crashes as told."""

    def __init__(self, crashes=()):
        self.crashes, self.calls = set(crashes), []

    def run(self, task, groups, *, is_doubtful):
        self.calls.append((task, [group[0] for group in groups], is_doubtful))
        if task in self.crashes:
            raise VmCrashedError(task)
        return [
            GroupResult(device_id, {}, [answer(task, device_id, run) for run in runs])
            for device_id, _, runs in groups
        ]


def answer(task, device_id, run):
    return RunResult(ok=True, emits=[(f"{task} {device_id} {run[0]}".encode(), b"")])


def asked(program, devices, *, is_doubtful=False):
    groups = [(d, {}, [(n, 0, ()) for n in range(1, count + 1)]) for d, count in devices]
    return Call(program, groups, is_doubtful)


def turn(rounds, error=None):
    """Ask round by round, return what came back."""
    found = []
    for calls in rounds:
        called = yield calls
        found.append([[group.device_id for group in each.results] for each in called])
        for call, each in zip(calls, called, strict=True):
            for (device_id, _, runs), group in zip(call.groups, each.results, strict=True):
                assert group.runs == [answer(call.program, device_id, run) for run in runs]
    if error is not None:
        raise error
    return found


def test_what_is_asked_at_once_is_one_call_for_each_program():
    pool = Pool()
    turns = {
        0: turn([[asked("a", [("x", 2)]), asked("b", [("x", 1)])], [asked("a", [("x", 1)])]]),
        1: turn([[asked("a", [("y", 1), ("z", 1)])]]),
        2: turn([]),
    }
    assert run_together(pool, turns) == {
        0: [[["x"], ["x"]], [["x"]]],
        1: [[["y", "z"]]],
        2: [],
    }
    assert pool.calls == [
        ("a", ["x", "y", "z"], False),
        ("b", ["x"], False),
        ("a", ["x"], False),
    ]


def test_runs_in_doubt_are_called_apart():
    pool = Pool()
    doubtful = turn([[asked("a", [("x", 1)], is_doubtful=True)]])
    run_together(pool, {0: doubtful, 1: turn([[asked("a", [("y", 1)])]])})
    assert pool.calls == [("a", ["x"], True), ("a", ["y"], False)]


def test_a_call_that_fails_is_a_failure_of_all_that_have_a_part_in_it():
    found = run_together(
        Pool({"b"}),
        {
            "both": turn([[asked("a", [("x", 1)]), asked("b", [("x", 1)])]]),
            "b": turn([[asked("b", [("y", 1)])]]),
            "a": turn([[asked("a", [("z", 1)])]]),
        },
    )
    assert isinstance(found["both"], VmCrashedError)
    assert isinstance(found["b"], VmCrashedError)
    assert found["a"] == [[["z"]]]


def test_a_turn_that_fails_leaves_the_others():
    found = run_together(
        Pool(),
        {
            0: turn([[asked("a", [("x", 1)])]], StoreError("full")),
            1: turn([[asked("a", [("y", 1)])]]),
        },
    )
    assert isinstance(found[0], StoreError)
    assert found[1] == [[["y"]]]
    with pytest.raises(StoreError):
        run_alone(Pool(), turn([], StoreError("full")))


def test_a_bug_goes_up():
    with pytest.raises(ZeroDivisionError):
        run_together(Pool(), {0: turn([], ZeroDivisionError())})


def test_the_time_of_a_call_is_shared_by_runs(monkeypatch):
    clock = iter([100.0, 140.0])
    monkeypatch.setattr("walle_stream.actors.turns.calling.monotonic_ms", lambda: next(clock))

    def timed(device_id, runs):
        [called] = yield [asked("a", [(device_id, runs)])]
        return called.took_ms

    assert run_together(Pool(), {0: timed("x", 3), 1: timed("y", 1)}) == {0: 30.0, 1: 10.0}


DEVICES = st.lists(st.integers(1, 3), max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from("abc"), DEVICES, st.booleans()), max_size=4)


@given(st.lists(st.lists(CALLS, max_size=3), max_size=5))
def test_turns_together_find_what_they_find_alone(described):
    def turns():
        return {
            number: turn(
                [
                    [
                        asked(
                            program,
                            [(f"{number}.{at}", n) for at, n in enumerate(counts)],
                            is_doubtful=is_doubtful,
                        )
                        for program, counts, is_doubtful in calls
                    ]
                    for calls in rounds
                ]
            )
            for number, rounds in enumerate(described)
        }

    alone = {number: run_alone(Pool(), each) for number, each in turns().items()}
    assert run_together(Pool(), turns()) == alone


def test_no_runs_take_no_time():
    def empty():
        return (yield [Call("a", [], is_doubtful=False)])

    assert run_alone(Pool(), empty()) == [Called([], 0.0)]
