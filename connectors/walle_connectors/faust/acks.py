"""Acknowledgements of a stream's records in the order of their offsets.

Faust takes them in any order, but is one off in its look for the first that is missing: where
the record at the committed offset waits and the one behind it is acknowledged, it commits
both (seen with 0.15.3). A record that may wait long, while those behind it do not, would be
lost with the process.
"""

from collections import deque
from typing import Any


class HeldRecord:
    """A record of which the acknowledgement may come at any time."""

    __slots__ = ("_lane", "event", "is_done")

    def __init__(self, event: Any, lane: "deque[HeldRecord]") -> None:
        """Stand behind those that came before.

        Args:
            event: Faust's.
            lane: Of its partition.
        """
        self.is_done = False
        self.event = event
        self._lane = lane
        lane.append(self)

    def ack(self) -> None:
        """Acknowledge it, as soon as all before it are."""
        self.is_done = True
        while self._lane and self._lane[0].is_done:
            self._lane.popleft().event.ack()


class AckOrder:
    """Holds back acknowledgements behind a record that has none. One thread."""

    def __init__(self) -> None:
        """Begin before any record."""
        self._lanes: dict[int, deque[HeldRecord]] = {}

    def take(self, event: Any) -> HeldRecord:
        """Take the next record of its partition.

        Args:
            event: Faust's, of a stream with ``noack``.

        Returns:
            What to acknowledge in its place.
        """
        return HeldRecord(event, self._lanes.setdefault(event.message.partition, deque()))

    def begin_anew(self) -> None:
        """Partitions were given or taken: records that come wait for none from before."""
        self._lanes = {}
