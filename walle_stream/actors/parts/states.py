"""State that scripts keep for each device."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn


class States(Part):
    """Task states of a partition's devices."""

    _opening: Opening

    def restart(self, opening: Opening) -> None:
        """Begin with the stored states."""
        self._opening = opening

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Write the changes of runs, then those of installations."""
        for task, changes in (*turn.done.changed, *turn.changed_states):
            rows.put_task_states(task, changes)

    def committed(self, turn: Turn) -> None:
        """Forget the devices that leave memory."""
        self._opening.states.forget(turn.leaving)
