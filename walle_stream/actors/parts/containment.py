"""Containment of runs that may have ended the last process.

The batch in hand at that time was not committed. Its events come first again, perhaps in other
batches, and its replies may come at any time. Until both are committed the partition is in doubt,
and its runs are contained.
"""

import logging
from typing import Final

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.turns.turn import Turn
from walle_stream.store.in_hand import InHand

_log: Final = logging.getLogger(__name__)


class Containment(Part):
    """Doubt about one partition; it outlives restarts of the partition."""

    def __init__(self, in_hand: InHand, number: int, batch_events: int) -> None:
        """Begin with the mark of the last process: its last batch had at most ``batch_events``."""
        self._in_hand = in_hand
        self._number = number
        self._events = batch_events
        self._calls = -1
        self.is_doubtful = in_hand.is_doubtful(number)
        if self.is_doubtful:
            _log.warning(
                "the last process ended while partition %d ran scripts: its next %d events run in "
                "process VMs",
                number,
                batch_events,
            )

    def mark(self) -> None:
        """Record that a VM is about to be called."""
        self._in_hand.mark(self._number)

    def close(self, deadline_ms: float | None) -> None:  # noqa: ARG002 - part signature
        """Record the end of the turn, committed or not."""
        self._in_hand.put_down(self._number)

    def restart(self, opening: Opening) -> None:
        """Note the number of calls at the first opening."""
        if self._calls < 0:
            self._calls = opening.head.counters.calls

    def committed(self, turn: Turn) -> None:
        """Subtract the events of a commit, and end the doubt when all are committed."""
        head = turn.head
        if self.is_doubtful:
            self._events = 0 if head.is_ended else self._events - turn.events
            if self._events <= 0 and head.counters.replies >= self._calls:
                self.is_doubtful = False
                self._in_hand.settle(self._number)
        self.close(None)
