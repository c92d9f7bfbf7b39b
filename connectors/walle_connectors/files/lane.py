"""What is collected for one partition between two batches, and in what order.

A ``Lane`` is the growing batch of a partition; a ``Scope`` holds back the
events of rows that are ordered among themselves.
"""

from heapq import heappop, heappush
from typing import Final

from walle_connectors.files.offsets import Position, encode_position
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, EventBatch, SourceBatch, SourceCounts

_EVENT_BYTES: Final = 500
"""Memory of a small event with its contents, measured on the KuaiRand feed."""

type Held = tuple[int, int, int, "Lane", Event]
"""An event with its place in the order: event time, step, order in the row;
and where it goes. The first three are unique."""


class Lane:
    """The growing batch of a partition."""

    __slots__ = (
        "accepted_rows",
        "dead_letters",
        "done",
        "done_step",
        "duplicate_rows",
        "events",
        "given",
        "is_fresh",
        "late_rows",
        "partition",
        "raw",
        "raw_bytes",
        "to_skip",
    )

    def __init__(self, partition: int, done: Position) -> None:
        """Begin."""
        self.partition = partition
        self.done = done
        self.done_step = done.step
        """Steps up to this one are accounted already."""
        self.to_skip = done.events
        """How many releases from now on were given before the restart."""
        self.given = done.events
        """How many events were given in all batches."""
        self._begin()

    def _begin(self) -> None:
        self.events: list[Event] = []
        self.dead_letters: list[DeadLetter] = []
        self.accepted_rows = 0
        self.duplicate_rows = 0
        self.late_rows = 0
        self.raw_bytes = 0
        self.raw: list[bytes] = []
        """Rows as the file had them, where they are kept."""
        self.is_fresh = True
        """Whether no row was accounted since the last batch."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to put in a batch."""
        return self.is_fresh and not self.events

    def has_end(self, step: int) -> bool:
        """Return whether the partition was told of the end at this step."""
        return self.done.step > step or (self.done.step == step and self.done.is_end)

    def cut(
        self, step: int, ends: tuple[int, ...], digest: int, *, is_end: bool = False
    ) -> SourceBatch:
        """Make a batch of what is there and begin the next one.

        Args:
            step: The step at hand; earlier ones are complete.
            ends: Ends so far.
            digest: Of the rows up to the step.
            is_end: This is the last batch of an end.
        """
        self.given += len(self.events)
        position = Position(step=step, events=self.given, ends=ends, is_end=is_end, digest=digest)
        dead = len(self.dead_letters) - self.late_rows
        counts = SourceCounts(
            source_rows=self.accepted_rows + self.duplicate_rows + self.late_rows + dead,
            accepted_rows=self.accepted_rows,
            duplicate_rows=self.duplicate_rows,
            late_rows=self.late_rows,
            dead_letter_rows=dead,
            raw_bytes=self.raw_bytes,
        )
        batch = SourceBatch(
            partition=self.partition,
            events=EventBatch(self.events),
            offset=encode_position(position),
            counts=counts,
            dead_letters=self.dead_letters,
            is_end=is_end,
            size_bytes=len(self.events) * _EVENT_BYTES + self.raw_bytes,
            raw=b"".join(self.raw) if self.raw else None,
        )
        self._begin()
        return batch


class Scope:
    """Rows whose events are ordered among themselves: all, or a device's."""

    __slots__ = ("held", "highest_ms", "released_ms")

    def __init__(self) -> None:
        """Begin before all times."""
        self.highest_ms = -1
        """Highest time of an accepted row."""
        self.released_ms = -1
        """Highest event time that was released."""
        self.held: list[Held] = []
        """A heap."""

    def order(self, events: list[Held], watermark_ms: int) -> list[Held]:
        """Hold back what lies behind the watermark and return what is due.

        Args:
            events: A row's events.
            watermark_ms: Highest row time less the lateness.

        Returns:
            Due events in their order.
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
        """Return everything held, in no order; the natural end."""
        held, self.held = self.held, []
        if held:
            self.released_ms = max(self.released_ms, max(held)[0])
        return held
