"""A partition's part of a reader: its collected events and its position."""

from typing import TYPE_CHECKING, ClassVar, Final

from walle_stream.ports import EventBatch, Origins, SourceBatch, SourceCounts
from walle_stream.reading.offsets import Position, encode_position

if TYPE_CHECKING:
    from walle_stream.events import Event
    from walle_stream.ports import DeadLetter

ROW_BYTES: Final = 500
"""Memory of a small event or of a dead letter, beside the row's bytes."""


class Lane[P: Position]:
    """One partition, whose reader fills the fields and cuts batches; for one thread."""

    __slots__ = (
        "accepted_rows",
        "dead_letters",
        "done",
        "duplicate_rows",
        "events",
        "late_rows",
        "number",
        "origins",
        "raw",
        "raw_bytes",
        "time_ms",
        "traces",
    )

    _uncounted: ClassVar[int] = -1
    """First value of ``accepted_rows``; below 0 each event counts as a row."""

    def __init__(self, number: int, done: P) -> None:
        """Begin empty; earlier batches have all events before ``done``."""
        self.number = number
        self.done = done
        self.time_ms = -1
        """Highest ingest time of the last events of batches, in epoch milliseconds."""
        self._begin()

    def _begin(self) -> None:
        self.events: list[Event] = []
        self.dead_letters: list[DeadLetter] = []
        self.accepted_rows = self._uncounted
        self.duplicate_rows = 0
        self.late_rows = 0
        """Number of late rows among the dead letters."""
        self.raw_bytes = 0
        self.raw: list[bytes] = []
        self.origins: list[int] = []
        """Number of each event's record, if the source numbers records."""
        self.traces: dict[int, str] = {}
        """Trace contexts of records, by their numbers."""

    @property
    def is_empty(self) -> bool:
        """Whether the lane has collected nothing."""
        return not (
            self.events or self.dead_letters or self.duplicate_rows or self.accepted_rows > 0
        )

    def cut(self, position: P, source: str = "", arrived_ms: float | None = None) -> SourceBatch:
        """Make a batch of everything that was collected.

        ``position`` is the partition's new position, after the batch. The numbers of ``origins``
        are places in ``source``, which is empty if it has no such numbers. ``arrived_ms`` is
        monotonic; None means now.
        """
        late, letters, events = self.late_rows, self.dead_letters, self.events
        accepted = len(events) if self.accepted_rows < 0 else self.accepted_rows
        batch = SourceBatch(
            partition=self.number,
            events=EventBatch(events),
            offset=encode_position(position),
            counts=SourceCounts(
                source_rows=accepted + self.duplicate_rows + len(letters),
                accepted_rows=accepted,
                duplicate_rows=self.duplicate_rows,
                late_rows=late,
                dead_letter_rows=len(letters) - late,
                raw_bytes=self.raw_bytes,
            ),
            dead_letters=letters,
            is_end=position.is_end,
            # a lower bound of the memory, because payloads may not be loaded
            size_bytes=(len(events) + len(letters)) * ROW_BYTES + self.raw_bytes,
            raw=b"".join(self.raw) if self.raw else None,
            arrived_ms=arrived_ms,
            origins=Origins(source, self.origins, self.traces) if source else None,
        )
        if events:
            self.time_ms = max(self.time_ms, events[-1].ingest_time_ms)
        self.done = position
        self._begin()
        return batch
