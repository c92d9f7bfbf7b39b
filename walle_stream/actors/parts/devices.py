"""The journal of taken batches, and the devices to write before journal rows can go."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.plan.journal import JournalWindow
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.wire.journal import encode_batch


class Journal(Part):
    """The turn's batches as one row; before ``Devices``. See ``actors.journal``."""

    _opening: Opening
    _window: JournalWindow

    def restart(self, opening: Opening) -> None:
        """Begin with an empty journal: an opening empties it."""
        self._opening = opening
        self._window = JournalWindow(opening.plan.journal_events)

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Write the row, and delete rows whose devices are all stored."""
        machine, window, is_end = self._opening.machine, self._window, turn.deadline_ms is not None
        numbers = machine.numbers()
        if turn.taken or numbers or turn.installs:
            turn.head.next_batch += 1
            row = encode_batch(
                turn.parts,
                turn.watermark_ms,
                is_end=turn.head.is_ended,
                numbers=numbers,
                installs=turn.installs,
            )
            window.add(machine.number, turn.events, len(row))
            rows.put_journal(machine.number, row)
        else:
            # devices written without a batch must not include the next one: a recovery would skip
            # that batch for them
            machine.number = turn.head.next_batch - 1
        turn.due = window.due
        turn.leaving = [] if is_end else machine.excess(self._opening.plan.active_devices)
        # the last commit of an opening writes every device
        rows.drop_journal(window.release(None if is_end else machine.oldest_dirty))


class Devices(Part):
    """Snapshots of devices that are dirty for long, or must leave memory."""

    _opening: Opening

    def restart(self, opening: Opening) -> None:
        """Begin with the stored devices."""
        self._opening = opening

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Write the dirty devices that are due, and those that leave memory."""
        machine, is_end = self._opening.machine, turn.deadline_ms is not None
        for delta in machine.delta(None if is_end else turn.due, turn.leaving):
            rows.put_device(delta)

    def committed(self, turn: Turn) -> None:
        """Remove the written devices that leave memory."""
        machine = self._opening.machine
        machine.mark_committed()
        machine.passivate(turn.leaving)
