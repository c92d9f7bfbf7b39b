"""The figures of tasks at the end of a run, and tasks without figures."""

from types import SimpleNamespace

import pytest

from walle_stream.app.figures.task_figures import TaskFigures, task_figures, task_problems
from walle_stream.wire.ledger import Ledger, TaskBytes
from walle_stream.wire.rows import Counters, TaskCounts


def part(tasks, features=None):
    ledger = Ledger({name: TaskBytes(features=n) for name, n in (features or {}).items()})
    return SimpleNamespace(tasks=tasks, ledger=ledger)


def task(**counts):
    return TaskFigures(task="t", **counts)


NONE = task()


def test_counts_of_all_partitions_add_up_and_a_task_that_never_ran_is_there():
    parts = [
        part({"b": TaskCounts(3, 1, 0, 0, 50, "old")}, {"b": 2}),
        part({"b": TaskCounts(4, 1, 1, 2, 70, "new"), "extra": TaskCounts(1)}),
        part({}),
    ]
    found = task_figures(["b", "a"], parts)
    assert [each.task for each in found] == ["b", "a", "extra"]
    b = found[0]
    assert (b.runs, b.failures, b.refused, b.returned, b.features) == (7, 2, 1, 2, 2)
    assert b.first_failure == "new"
    assert found[1] == TaskFigures(task="a")


@pytest.mark.parametrize(
    ("before", "after", "rows", "is_whole", "expected"),
    [
        (NONE, task(runs=2, failures=1), 9, True, 0),
        (NONE, task(runs=2, failures=2), 9, True, 1),
        (NONE, task(runs=2, failures=2), 9, False, 1),  # after a signal, too
        (NONE, NONE, 9, True, 1),
        (NONE, NONE, 9, False, 0),  # it may fire yet
        (NONE, NONE, 0, True, 1),  # an empty source
        (NONE, NONE, -9, True, 1),  # all rows were refused
        # the same command again: nothing new, the same answer
        (task(runs=2), task(runs=2), 9, True, 0),
        (task(runs=2, failures=2), task(runs=2, failures=2), 9, True, 1),
        # what failed before does not excuse this run, nor blame it
        (task(runs=5), task(runs=7, failures=2), 9, True, 1),
        (task(runs=5, failures=5), task(runs=7, failures=5), 9, True, 0),
        # a new process that goes on behind a quarantine executed nothing
        (task(runs=5), task(runs=7, failures=2, refused=2), 9, True, 0),
        (NONE, task(runs=7, failures=7, refused=4), 9, True, 1),
    ],
)
def test_a_task_is_blamed_for_runs_that_did_nothing(before, after, rows, is_whole, expected):
    counters = Counters(
        source_rows=abs(rows), events=max(rows, 0)
    )  # below 0: no event came of them
    assert len(task_problems([before], [after], counters, is_whole=is_whole)) == expected


def test_what_devices_have_installed_is_not_blamed():
    installed = TaskFigures(task="installed", runs=1, failures=1)
    counters = Counters(events=9)
    assert task_problems([task(runs=1)], [task(runs=1), installed], counters, is_whole=True) == []
