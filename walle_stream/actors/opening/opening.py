"""Opening of a partition at its last commit."""

from contextlib import ExitStack

from walle_stream.actors.opening.recovery import recover
from walle_stream.actors.parts.part import Opening, PartitionSetup
from walle_stream.actors.plan.partition_sets import PartitionSets
from walle_stream.actors.turns.task_states import TaskStates
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.task_sets import SetDefinition


def open_partition(setup: PartitionSetup) -> Opening:
    """Open a partition; blocks on the store.

    Raises:
        WalleError: The partition cannot be opened; its database is closed.
    """
    plan, rows = setup.plan, setup.open_rows()
    with ExitStack() as undo:
        undo.callback(rows.close)
        recover(rows, SetDefinition(plan.triggers, plan.policy))
        incarnation = rows.incarnation(plan.incarnation)
        head = rows.head()
        sets = PartitionSets(rows, plan.policy, plan.tasks, plan.programs, plan.reported_as)
        machine = PartitionMachine(sets.find)
        machine.watermark_ms = head.watermark_ms
        for device_id, deadline_ms in rows.timers():
            machine.arm(device_id, deadline_ms)
        undo.pop_all()
    states = TaskStates(rows.task_state)
    own = setup.number, plan, rows, head, incarnation
    return Opening(*own, sets, states, machine)
