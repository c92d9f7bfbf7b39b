"""What became of each task's runs: for the end of a run, ``walle status`` and metrics."""

from collections.abc import Iterable, Sequence

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.wire.ledger import Ledger, TaskBytes
from walle_stream.wire.rows import Counters, PartitionHead, TaskCounts, add_tasks


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a data directory; cumulative, as its counters are."""

    task: str
    runs: int = 0
    failures: int = 0
    """Runs that failed for good."""
    refused: int = 0
    """Of the failures, those that were not let begin: the task is quarantined on the device."""
    features: int = 0
    returned: int = 0
    """Runs that returned a value, which nobody takes."""
    first_failure: str = ""
    """``file:line: class: text``, of the newest run of the pipeline that had one."""


def task_figures(
    names: Iterable[str], parts: Iterable[PartitionHead | PartitionStatus]
) -> list[TaskFigures]:
    """Add up what became of the tasks' runs in all partitions.

    The definition's tasks come first, in their order, also those that never ran; then what was
    installed besides, by name.
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
    """Say which of the definition's tasks did nothing at all, a line each.

    A task is judged by what it ran in this run of the pipeline, and by all its runs over the data
    directory where that is nothing: so the same command again gives the same answer. Both lists
    begin with the definition's tasks in their order. Before the source's end (not ``is_whole``) a
    task may fire yet.
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
