"""Brings a partition's devices up to its last commit, when it was not closed.

The journal's batches are given once more, in order, to a core of the definition
that they were handled with. What they fired is dropped: its effects are in the
store since the same commits as the batches. Then every device is written and the
journal is empty, in ONE commit: a death before it changes nothing, one after it
leaves nothing to do.
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

    The definition is what batches are handled with from now on; it is kept, so that the next
    recovery can tell.
    """
    stored = rows.journal_definition()
    core = None
    if any(True for _ in rows.journal()):
        # only a first opening has no definition, and then no journal either
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
    """Give a journal's batches once more; the devices that they change are dirty then.

    The core is empty. ``timers`` are deadlines of devices at rest, ``wake`` brings those into
    memory that are not. Returns the batches' numbers.
    """
    replayed = []
    for device_id, deadline_ms in timers:
        core.arm(device_id, deadline_ms)
    for number, batch in journal:
        events, is_end = batch.events, batch.is_end
        core.number, core.watermark_ms = number, batch.watermark_ms
        wake(core.absent(events, is_end=is_end))
        core.take(events, is_end=is_end)
        # some come by a reply, or an installation, and have no event
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
    # nothing is run: of the definition's tasks only what wakes them matters
    tasks = {
        name: InstalledTask("", triggers, name) for name, triggers in definition.triggers.items()
    }
    return lambda set_id: SetDefinition.of(stored_changes(rows, set_id), tasks, definition.policy)
