"""Recovery of a partition's devices to its last commit, if the partition was not closed.

The journal's batches are handled once more, in order, by a core with their original definition. The
fired tasks are dropped: their effects were committed with the batches. Then every device is written
and the journal emptied, in ONE commit. A crash before this commit changes nothing; after it nothing
is left to do.
"""

from collections.abc import Callable, Iterable
from functools import partial

from walle_stream.actors.plan.partition_sets import stored_changes
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.faults import crash_point
from walle_stream.ports import InstalledTask
from walle_stream.stream.interface import Core, FindSet
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.wire.journal import JournalBatch


def recover(rows: PartitionRows, definition: SetDefinition) -> None:
    """Empty the journal of an opened partition; blocks.

    ``definition`` is the one for batches from now on. It is stored for the next recovery.
    """
    stored = rows.journal_definition()
    core = None
    if any(True for _ in rows.journal()):
        # only a first opening has no definition, and then it has no journal either
        core = PartitionMachine(_finder(rows, stored or definition))
        replayed = replay(core, rows.journal(), rows.timers(), partial(rows.wake, core))
        rows.drop_journal(replayed)
        for delta in core.delta():
            rows.put_device(delta)
    elif stored == definition:
        return
    rows.put_journal_definition(definition)
    crash_point("recover.before")
    rows.commit(rows.head(), rows.offset())
    crash_point("recover.after")


def replay(
    core: Core,
    journal: Iterable[tuple[int, JournalBatch]],
    timers: Iterable[tuple[str, int]],
    wake: Callable[[Iterable[str]], object],
) -> list[int]:
    """Give a journal's batches to a core once more; the changed devices are dirty afterwards.

    The core is empty. ``timers`` are deadlines of passive devices; ``wake`` loads missing devices
    into memory. Returns the batches' numbers.
    """
    replayed = []
    for device_id, deadline_ms in timers:
        core.arm(device_id, deadline_ms)
    for number, batch in journal:
        events, is_end = batch.events, batch.is_end
        core.number, core.watermark_ms = number, batch.watermark_ms
        wake(core.absent(events, is_end=is_end))
        core.take(events, is_end=is_end)
        # some numbers come from replies or installations, without an event
        for device_id, *numbers in batch.numbers:
            wake([device_id])
            core.set_numbers(device_id, *numbers)
        for device_id, task_set in batch.installs:
            wake([device_id])
            core.install(device_id, task_set)
        core.mark_committed()
        replayed.append(number)
    return replayed


def _finder(rows: PartitionRows, definition: SetDefinition) -> FindSet:
    # no task runs, so only the triggers of the definition matter
    tasks = {
        name: InstalledTask("", triggers, name) for name, triggers in definition.triggers.items()
    }
    return lambda set_id: SetDefinition.of(stored_changes(rows, set_id), tasks, definition.policy)
