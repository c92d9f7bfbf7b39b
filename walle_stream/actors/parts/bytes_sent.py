"""The ledger of bytes: the tasks whose features and calls are in a commit's frames."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.ledger import book_measured, book_sent
from walle_stream.actors.turns.turn import Turn


class BytesSent(Part):
    """Ledger of a partition; after features and calls, before other frames."""

    _opening: Opening

    def restart(self, opening: Opening) -> None:
        """Continue from the last commit."""
        self._opening = opening

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - part signature
        """Add the frames so far to the ledger."""
        plan, head = self._opening.plan, turn.head
        sent = book_sent(turn.records, turn.calls, turn.bodies)
        if plan.is_measured:
            sent = sent.plus(book_measured(sent, turn.raw, turn.records, plan.compression))
        head.ledger = head.ledger.plus(sent)
