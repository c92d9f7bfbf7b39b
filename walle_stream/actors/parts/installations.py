"""Installations on devices: their next task sets, and the layouts of their states."""

from collections.abc import Iterable, Sequence

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.installing import Wanted
from walle_stream.actors.turns.turn import Turn
from walle_stream.ports import InstalledTask
from walle_stream.stream.snapshots import DeviceSnapshot
from walle_stream.stream.task_sets import DEFAULT_SET, Changes


class Installations(Part):
    """Task sets of a partition's devices; before journal, devices and states."""

    _opening: Opening
    _task_sets: Iterable[str]  # of the last commit

    def restart(self, opening: Opening) -> None:
        """Use the task sets of the opened partition."""
        self._opening = opening
        self._task_sets = opening.head.task_sets

    def ask(self, turn: Turn, wanted: Sequence[Wanted], devices: Iterable[tuple[str, int]]) -> None:
        """Record the changes of devices for the current turn; blocks on the store.

        A device comes as its id and an index into ``wanted``. Devices that already have their tasks
        stay unchanged.
        """
        opening = self._opening
        machine, sets = opening.machine, opening.sets
        after: dict[tuple[str, int], str] = {}
        for device_id, which in devices:
            opening.rows.wake(machine, [device_id])
            old = machine.task_set(device_id)
            if (old, which) not in after:
                after[old, which] = sets.after(old, wanted[which])
            if after[old, which] != old:
                turn.installs.append((device_id, after[old, which]))

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - part signature
        """Give devices their next tasks."""
        if turn.installs:
            opening = self._opening
            opening.sets.move(turn, opening.machine, opening.states)

    def committed(self, turn: Turn) -> None:
        """Keep the committed task sets."""
        self._task_sets = turn.head.task_sets

    def changes_of(self, device_id: str) -> Changes:
        """Return a device's changes to the definition's tasks; blocks on the store."""
        opening = self._opening
        if opening.machine.is_active(device_id):
            return opening.sets.changes(opening.machine.task_set(device_id))
        row = opening.rows.device(device_id)
        return {} if row is None else opening.sets.changes(DeviceSnapshot.decoded(row).task_set)

    def programs(self) -> dict[str, InstalledTask]:
        """Return the tasks of all devices, and those of the definition, by program."""
        return self._opening.sets.programs_of([DEFAULT_SET, *self._task_sets])
