"""Whether a partition's next runs may be those that ended the last process.

The batch that was in hand then is not committed: its events come first again,
perhaps cut otherwise, and so do its replies, at any time. Until both are
committed the partition is in doubt, and its runs are contained.
"""

import logging
from typing import Final

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.turns.turn import Turn
from walle_stream.store.in_hand import InHand

_log: Final = logging.getLogger(__name__)


class Containment(Part):
    """Doubt about one partition; it outlives restarts, as the process does."""

    def __init__(self, in_hand: InHand, number: int, batch_events: int) -> None:
        """Begin with what the last process left: ``batch_events`` may be of its last batch."""
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
        """Note that a VM is about to be called."""
        self._in_hand.mark(self._number)

    def close(self, deadline_ms: float | None) -> None:  # noqa: ARG002 - the part's signature
        """Note that the turn is over, committed or not."""
        self._in_hand.put_down(self._number)

    def restart(self, opening: Opening) -> None:
        """Look at where the partition begins."""
        if self._calls < 0:
            self._calls = opening.head.counters.calls

    def committed(self, turn: Turn) -> None:
        """Take a commit into account."""
        head = turn.head
        if self.is_doubtful:
            self._events = 0 if head.is_ended else self._events - turn.events
            if self._events <= 0 and head.counters.replies >= self._calls:
                self.is_doubtful = False
                self._in_hand.settle(self._number)
        self.close(None)
