"""A partition while a file of events is read: what was collected for it, and where it stands."""

from typing import TYPE_CHECKING, Final

from walle_connectors.events.offsets import Position
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts

if TYPE_CHECKING:
    from walle_stream.events import Event
    from walle_stream.ports import DeadLetter

_ROW_BYTES: Final = 500  # an event or a dead letter, beside its texts


class Lane[P: Position]:
    """One partition; the reader writes to its fields and cuts batches. One thread."""

    __slots__ = ("dead_letters", "done", "events", "number", "raw", "raw_bytes")

    def __init__(self, number: int, done: P) -> None:
        """Begin without anything collected."""
        self.number = number
        self.done = done
        self._begin()

    def _begin(self) -> None:
        self.events: list[Event] = []
        self.dead_letters: list[DeadLetter] = []
        self.raw_bytes = 0
        self.raw: list[bytes] = []

    @property
    def rows(self) -> int:
        """How many rows were collected."""
        return len(self.events) + len(self.dead_letters)

    def cut(self, position: P, offset: bytes) -> SourceBatch:
        """Make a batch of what was collected.

        Args:
            position: Behind the last of it; the partition stands there now.
            offset: The same, encoded.
        """
        raw = b"".join(self.raw) if self.raw else None
        batch = SourceBatch(
            partition=self.number,
            events=EventBatch(self.events),
            offset=offset,
            counts=SourceCounts(
                source_rows=self.rows,
                accepted_rows=len(self.events),
                dead_letter_rows=len(self.dead_letters),
                raw_bytes=self.raw_bytes,
            ),
            dead_letters=self.dead_letters,
            is_end=position.is_end,
            # at least what is in memory: payloads may not be
            size_bytes=self.rows * _ROW_BYTES + self.raw_bytes,
            raw=raw,
        )
        self.done = position
        self._begin()
        return batch
