"""Dead letters: rows, and letters for a sink."""

from functools import partial

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.tunnel.letters import LetterSession


class Letters(Part):
    """Dead letters of a partition; after all parts that make some."""

    def __init__(self) -> None:
        """Begin without a sink session."""
        self._session: LetterSession | None = None
        self._durable = 0  # number of the last letter that may leave

    def restart(self, opening: Opening) -> None:
        """Send the letters that the sink has not acknowledged."""
        plan, rows = opening.plan, opening.rows
        if plan.sink is None:
            return
        whose = {"pipeline": plan.pipeline, "incarnation": opening.incarnation}
        self._session = LetterSession(
            plan.sink,
            opening.number,
            lambda after: rows.unsent_letters(after, partition=opening.number, **whose),
        )
        self._let_out(opening.head.next_dead_letter - 1)

    def idle(self, turn: Turn) -> bool:  # noqa: ARG002 - part signature
        """Send as many letters as the sink has room for."""
        if self._session is not None:
            self._session.pump(self._durable)
        return False

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:
        """Write new letters, and delete the marks of acknowledged ones."""
        session, head = self._session, turn.head
        rows.put_dead_letters(head, turn.dead_letters, is_to_send=session is not None)
        if session is None:
            return
        if turn.deadline_ms is not None:
            session.flush(self._durable, turn.deadline_ms)
        rows.drop_letter_marks(session.collect())
        turn.on_durable.append(partial(self._let_out, head.next_dead_letter - 1))

    def _let_out(self, last: int) -> None:
        self._durable = last
        if self._session is not None:
            self._session.pump(last)
