"""Acknowledgements of a stream's records in the order of their offsets.

Faust takes them in any order, but is one off in its look for the first that is missing: where
the record at the committed offset waits and the one behind it is acknowledged, it commits
both (seen with 0.15.3). A record that may wait long, while those behind it do not, would be
lost with the process.

Before it ends, or gives partitions away, Faust waits until all records are acknowledged. For
one that waits for somebody else it should not, nor for those behind it: they come again.
"""

from collections import deque
from collections.abc import Callable, MutableSet
from typing import Any

type Unacked = Callable[[], MutableSet[Any]]
"""Gives the messages that Faust waits for."""


class HeldRecord:
    """A record of which the acknowledgement may come at any time."""

    __slots__ = ("_lane", "_unacked", "event", "is_done")

    def __init__(self, event: Any, lane: "deque[HeldRecord]", unacked: Unacked) -> None:
        """Stand behind those that came before.

        Args:
            event: Faust's.
            lane: Of its partition.
            unacked: See ``AckOrder``.
        """
        self.is_done = False
        self.event = event
        self._lane = lane
        self._unacked = unacked
        lane.append(self)

    def ack(self) -> None:
        """Acknowledge it, as soon as all before it are."""
        self.is_done = True
        if not self._lane[0].is_done:
            self.set_aside()
        while self._lane and self._lane[0].is_done:
            self._lane.popleft().event.ack()

    def set_aside(self) -> None:
        """Let nothing wait for its acknowledgement but offsets."""
        self._unacked().discard(self.event.message)


class AckOrder:
    """Holds back acknowledgements behind a record that has none. One thread."""

    def __init__(self, unacked: Unacked) -> None:
        """Begin before any record.

        Args:
            unacked: Gives the messages that Faust waits for, while it runs.
        """
        self._unacked = unacked
        self._lanes: dict[int, deque[HeldRecord]] = {}

    def take(self, event: Any) -> HeldRecord:
        """Take the next record of its partition.

        Args:
            event: Faust's, of a stream with ``noack``.

        Returns:
            What to acknowledge in its place.
        """
        lane = self._lanes.setdefault(event.message.partition, deque())
        return HeldRecord(event, lane, self._unacked)

    def begin_anew(self) -> None:
        """Partitions were given or taken: records that come wait for none from before."""
        self._lanes = {}
