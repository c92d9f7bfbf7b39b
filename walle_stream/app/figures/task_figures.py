"""Outcomes of each task's runs: for the end of a run, ``walle status`` and metrics."""

from collections.abc import Iterable, Sequence

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.wire.ledger import Ledger, TaskBytes
from walle_stream.wire.rows import Counters, PartitionHead, TaskCounts, add_tasks


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a task, cumulative for the data directory."""

    task: str
    runs: int = 0
    failures: int = 0
    """Runs that failed for good."""
    refused: int = 0
    """Failures of runs that never started, because the task is quarantined on the device."""
    features: int = 0
    returned: int = 0
    """Runs that returned a value; such values are ignored."""
    first_failure: str = ""
    """``file:line: class: text``, of the newest run of the pipeline with a failure."""


def task_figures(
    names: Iterable[str], parts: Iterable[PartitionHead | PartitionStatus]
) -> list[TaskFigures]:
    """Add up the outcomes of the tasks' runs in all partitions.

    The definition's tasks come first, in their order, even those that never ran. Installed tasks
    follow, by name.
    """
    tasks: dict[str, TaskCounts] = {}
    ledger = Ledger()
    for part in parts:
        tasks = add_tasks(tasks, part.tasks)
        ledger = ledger.plus(part.ledger)
    figures = []
    for name in dict.fromkeys((*names, *sorted(tasks))):
        counts = tasks.get(name, TaskCounts())
        figures.append(
            TaskFigures(
                task=name,
                runs=counts.runs,
                failures=counts.failures,
                refused=counts.refused,
                features=ledger.tasks.get(name, TaskBytes()).features,
                returned=counts.returned,
                first_failure=counts.failure,
            )
        )
    return figures


def task_problems(
    before: Sequence[TaskFigures],
    after: Sequence[TaskFigures],
    counters: Counters,
    *,
    is_whole: bool,
) -> list[str]:
    """Return one line for each of the definition's tasks that did nothing useful.

    A task is judged by its runs in this run of the pipeline. If it had none, all its runs over the
    data directory count, so that the same command again gives the same answer. Both lists begin
    with the definition's tasks in their order. Before the source's end (``is_whole`` is False) a
    task may still fire.
    """
    problems = []
    for old, new in zip(before, after, strict=False):
        runs, failures = new.runs - old.runs, new.failures - old.failures
        if runs == new.refused - old.refused:
            runs, failures = new.runs, new.failures
        if runs and failures == runs:
            first = f", first {new.first_failure}" if new.first_failure else ""
            problems.append(f"every run of task {new.task!r} failed ({runs:,}){first}")
        elif not runs and is_whole:
            why = "the source has no rows"
            if counters.events:
                why = f"none of {counters.events:,} events matched its triggers"
            elif counters.source_rows:
                why = f"none of {counters.source_rows:,} rows gave an event"
            problems.append(f"task {new.task!r} never fired: {why}")
    return problems
