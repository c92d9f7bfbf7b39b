"""How many events a batch may have: as many as a turn takes in its target time.

Large batches spread what a turn costs at least (a VM's call, a write batch, a
frame) over more events, small ones are committed sooner. Where batches are cut
changes no feature and no state; so time may be measured here.
"""

from typing import Final

FIRST_EVENTS: Final = 256
"""Most events of a batch before any turn was measured: a script's runs may be long."""

LEAST_EVENTS: Final = 8
"""A batch is never cut smaller, whatever a turn takes."""

_GROWTH: Final = 2.0
_WEIGHT: Final = 0.3


class BatchSizer:
    """Batch size of one device host. Its thread measures, the source's thread asks."""

    def __init__(self, target_ms: float, most: int) -> None:
        """Begin small.

        Args:
            target_ms: What a turn should take at most, milliseconds.
            most: Largest batch, ≥ 1.
        """
        self.target_ms = target_ms
        """What a turn should take at most, milliseconds."""
        self._most = most
        self._cost_ms = 0.0
        self.events = min(FIRST_EVENTS, most)
        """Most events of the next batch."""

    def expected_ms(self, events: int) -> float:
        """Return how long a turn should take, as turns of late did; 0 before the first.

        Args:
            events: Of its batch.
        """
        return self._cost_ms * events

    def add(self, events: int, turn_ms: float) -> None:
        """Learn from a turn.

        Args:
            events: Of its batch; none teach nothing.
            turn_ms: From the beginning of the turn to its commit, milliseconds.
        """
        if not events:
            return
        cost_ms = turn_ms / events
        # what one batch costs in excess, a waking of many devices, must not halve the next
        self._cost_ms = (
            (1 - _WEIGHT) * self._cost_ms + _WEIGHT * cost_ms if self._cost_ms else cost_ms
        )
        wanted = self.target_ms / self._cost_ms if self._cost_ms else float(self._most)
        # a small batch says little about a large one
        grown = min(wanted, max(_GROWTH * events, self.events))
        self.events = min(max(int(grown), LEAST_EVENTS), self._most)
