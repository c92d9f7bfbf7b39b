"""Rows with a common order of events: held events, and due ones."""

from heapq import heappop, heappush

from walle_connectors.files.offsets import FilePosition
from walle_stream.events import Event
from walle_stream.reading import Lane


class RowLane(Lane[FilePosition]):
    """A partition, and the number of events released before the restart."""

    __slots__ = ("to_skip",)

    _uncounted = 0

    def __init__(self, number: int, done: FilePosition) -> None:
        """Start at a position."""
        super().__init__(number, done)
        self.to_skip = done.events


type Held = tuple[int, int, int, RowLane, Event]
"""An event, its place in the order (event time, step, place in the row; together unique) and its
partition."""


class Scope:
    """Rows with a common order of events: all rows, or a device's."""

    __slots__ = ("held", "highest_ms", "released_ms")

    def __init__(self) -> None:
        """Start before all times."""
        self.highest_ms = -1
        """Highest time of an accepted row."""
        self.released_ms = -1
        """Highest event time that was released."""
        self.held: list[Held] = []
        """Held events, as a heap."""

    def order(self, events: list[Held], watermark_ms: int) -> list[Held]:
        """Hold events above the watermark, and return due ones in order.

        The watermark is the highest row time less the lateness.
        """
        held = self.held
        for event in events:
            heappush(held, event)
        due: list[Held] = []
        while held and held[0][0] <= watermark_ms:
            due.append(heappop(held))
        if due and due[-1][0] > self.released_ms:
            self.released_ms = due[-1][0]
        return due

    def release_all(self) -> list[Held]:
        """Return all held events, in no order; for the natural end."""
        held, self.held = self.held, []
        if held:
            self.released_ms = max(self.released_ms, max(held)[0])
        return held
