"""Runs that fail are tried again as their task says, and the rest of the device sees no difference."""

from types import SimpleNamespace

import pytest

from walle_stream.actors.runs import TaskRuns
from walle_stream.actors.turns.attempts import PAUSE_MAX_MS, FailurePolicy
from walle_stream.actors.turns.calling import run_alone
from walle_stream.actors.turns.task_states import TaskStates
from walle_stream.vm.results import GroupResult, RunResult

pytestmark = pytest.mark.actors


class Pool:
    """Each run appends its position to the state and emits it; some fail so often first."""

    def __init__(self, failures, error="RunStopped", strikes=99):
        self.failures, self.error, self.strikes = dict(failures), error, strikes
        self.calls, self.stopped = [], 0

    def run(self, _task, groups, *, is_doubtful):
        assert not is_doubtful
        self.calls.append([[run[0] for run in group[2]] for group in groups])
        return [self._group(*group) for group in groups]

    def _group(self, device_id, state, runs):
        seen, results = state.get("seen", b""), []
        is_out = self.stopped >= self.strikes
        for position, _, _ in runs:
            if is_out:
                results.append(RunResult(ok=False, error="Quarantined", message="out"))
            elif self.failures.get((device_id, position), 0) > 0:
                self.failures[device_id, position] -= 1
                self.stopped += 1
                results.append(RunResult(ok=False, error=self.error, message="as it should"))
            else:
                seen += b"%d," % position
                results.append(RunResult(ok=True, emits=[(seen, b"")]))
        changed = {"seen": seen} if seen != state.get("seen", b"") else {}
        return GroupResult(device_id, changed, results)


class Doubt:
    is_doubtful = False

    def mark(self):
        pass


def run(pool, on_error, runs):
    pauses = []
    states = TaskStates(lambda _device, _task: {})
    opening = SimpleNamespace(
        states=states,
        sets=SimpleNamespace(on_error={"t": on_error}),
        plan=SimpleNamespace(warned=set()),
    )
    task_runs = TaskRuns(opening, Doubt(), wait=pauses.append)
    woken = {}
    for device_id, position in runs:
        page = ("p", "", "exit", None, None, [])
        woken.setdefault(device_id, []).append((position, 0, page))
    calling = task_runs.run([{("t", "t"): woken}])
    done = run_alone(pool, calling)
    changed = {device: each for _, changes in done.changed for device, each in changes.items()}
    return done, changed, pauses


RUNS = [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def emitted(done):
    return {(each.device_id, each.position): emits[0][0] for each, emits in done.emitted}


def test_a_run_that_succeeds_in_the_end_leaves_nothing_but_its_pause():
    expected, state, _ = run(Pool({}), FailurePolicy(), RUNS)
    pool = Pool({("a", 2): 2})
    done, changed, pauses = run(pool, FailurePolicy(attempts=3, backoff_ms=10), RUNS)
    assert (emitted(done), changed) == (emitted(expected), state)
    assert (done.dead_letters, done.failures) == ([], 0)
    assert pauses == [0.01, 0.02]
    # the device's runs one by one from the first, the other device's stand
    assert pool.calls[1:] == [[[1]], [[2]], [[2]], [[3]]]


def test_one_attempt_is_one_call():
    pool = Pool({("a", 2): 1})
    done, changed, pauses = run(pool, FailurePolicy(), RUNS)
    assert len(pool.calls) == 1
    assert pauses == []
    [letter] = done.dead_letters
    assert (letter.attempts, letter.origin, letter.holds) == (1, "a@2", "page")
    assert changed["a"] == {"seen": b"1,3,"}


def test_a_run_that_fails_for_good_has_one_letter_that_counts_the_attempts():
    done, changed, pauses = run(Pool({("a", 2): 9, ("b", 1): 1}), FailurePolicy(4, 100), RUNS)
    [letter] = done.dead_letters
    assert (letter.attempts, letter.origin, letter.error) == (4, "a@2", "RunStopped")
    assert done.failures == 1
    assert changed == {"a": {"seen": b"1,3,"}, "b": {"seen": b"1,"}}
    assert pauses[-1] == 0.4


def test_without_dead_letters_a_failure_is_counted_alone():
    done, _, _ = run(Pool({("a", 2): 9}), FailurePolicy(2, 0, leaves_letter=False), RUNS)
    assert (done.dead_letters, done.failures) == ([], 1)


def test_a_run_that_may_not_begin_is_not_tried_again():
    pool = Pool({}, strikes=0)
    done, _, pauses = run(pool, FailurePolicy(5), RUNS)
    assert len(pool.calls) == 1
    assert pauses == []
    assert {letter.attempts for letter in done.dead_letters} == {0}
    assert len(done.dead_letters) == len(RUNS)


def test_a_quarantine_in_between_keeps_what_led_to_it():
    done, _, _ = run(Pool({("a", 1): 9}, strikes=2), FailurePolicy(5, 0), [("a", 1), ("a", 2)])
    assert [(each.error, each.attempts) for each in done.dead_letters] == [
        ("RunStopped", 2),
        ("Quarantined", 0),
    ]


def test_what_came_before_a_quarantine_has_succeeded():
    runs = [each for each in RUNS if each[0] == "a"]
    done, changed, _ = run(Pool({("a", 2): 9}, strikes=1), FailurePolicy(5, 0), runs)
    [letter] = done.dead_letters
    assert (letter.origin, letter.attempts) == ("a@2", 1)
    assert changed["a"] == {"seen": b"1,3,"}


def test_pauses_double_up_to_a_bound():
    on_error = FailurePolicy(10, 300)
    assert [on_error.pause_ms(n) for n in (1, 2, 3, 4, 9)] == [
        300,
        600,
        1_200,
        PAUSE_MAX_MS,
        PAUSE_MAX_MS,
    ]


def test_runs_are_counted_by_task_with_the_first_failure():
    done, _, _ = run(Pool({("a", 2): 9, ("b", 1): 1}), FailurePolicy(2, 0), RUNS)
    counts = done.tasks["t"]
    assert (counts.runs, counts.failures, counts.refused) == (4, 1, 0)
    assert counts.failure == "as it should"
    assert counts.failed_ms > 0


def test_runs_that_may_not_begin_are_counted_apart():
    done, _, _ = run(Pool({}, strikes=0), FailurePolicy(), RUNS)
    counts = done.tasks["t"]
    assert (counts.runs, counts.failures, counts.refused, counts.failure) == (4, 4, 4, "")
