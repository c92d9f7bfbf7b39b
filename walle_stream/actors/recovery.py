"""Brings a partition's devices up to its last commit, when it was not closed.

The journal's batches are given once more, in order, to a machine of the definition
that they were handled with. What they fired is dropped: its effects are in the
store since the same commits as the batches. Then every device is written and the
journal is empty, in ONE commit: a death before it changes nothing, one after it
leaves nothing to do.
"""

from collections.abc import Callable

from walle_stream.actors.journal import JournalDefinition
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.partition_sets import stored_changes
from walle_stream.faults import crash_point
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.task_sets import InstalledTask, TaskSet


def recover(rows: PartitionRows, definition: JournalDefinition) -> None:
    """Empty the journal of an opened partition; blocks.

    Args:
        rows: The partition's rows.
        definition: What batches are handled with from now on; kept, so that the
            next recovery can tell.
    """
    stored = rows.journal_definition()
    # only a directory of an earlier version has none, and then no journal either
    machine = _replay(rows, stored or definition)
    if machine is None and stored == definition:
        return
    if machine is not None:
        for delta in machine.delta():
            rows.put_device(delta)
    rows.put_journal_definition(definition)
    crash_point("recover.before")
    rows.commit(rows.head(), rows.offset())
    crash_point("recover.after")


def _replay(rows: PartitionRows, definition: JournalDefinition) -> PartitionMachine | None:
    machine = None
    ahead: dict[str, int] = {}  # devices that were written later than the batch at hand
    replayed = []
    for number, batch in rows.journal():
        if machine is None:
            machine = PartitionMachine(
                definition.triggers, definition.policy, find_set=_finder(rows, definition)
            )
            for device_id, deadline_ms in rows.timers():
                machine.arm(device_id, deadline_ms)
        machine.number, machine.watermark_ms = number, batch.watermark_ms
        for device_id in machine.absent(batch.events, is_end=batch.is_end):
            _activate(machine, rows, device_id, ahead)
        ahead = {device_id: last for device_id, last in ahead.items() if last >= number}
        machine.handle(batch.events, is_end=batch.is_end, skipping=ahead)
        for device_id, *numbers in batch.numbers:
            if _is_behind(machine, rows, device_id, ahead, number):  # a reply came, and no event
                machine.set_numbers(device_id, *numbers)
        for device_id, task_set in batch.installs:
            if _is_behind(machine, rows, device_id, ahead, number):
                machine.install(device_id, task_set)
        machine.mark_committed()
        replayed.append(number)
    if replayed:
        rows.drop_journal(replayed)
    return machine


def _is_behind(
    machine: PartitionMachine,
    rows: PartitionRows,
    device_id: str,
    ahead: dict[str, int],
    number: int,
) -> bool:
    if not machine.is_active(device_id):
        _activate(machine, rows, device_id, ahead)
    return ahead.get(device_id, 0) < number


def _finder(rows: PartitionRows, definition: JournalDefinition) -> Callable[[str], TaskSet]:
    # nothing is run: of the definition's tasks only what wakes them matters
    tasks = {
        name: InstalledTask("", triggers, name) for name, triggers in definition.triggers.items()
    }

    def find(set_id: str) -> TaskSet:
        return TaskSet.of(set_id, stored_changes(rows, set_id), tasks, definition.policy)

    return find


def _activate(
    machine: PartitionMachine, rows: PartitionRows, device_id: str, ahead: dict[str, int]
) -> None:
    snapshot, pages = rows.device(device_id)
    machine.activate(device_id, snapshot, pages)
    if snapshot is not None:
        ahead[device_id] = snapshot.as_of
