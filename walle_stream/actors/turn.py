"""A turn of a partition: what is taken from batches until their commit."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from walle_stream.actors.dead_letters import set_large_numbers_aside
from walle_stream.actors.ledger import RawRows
from walle_stream.actors.places import Places
from walle_stream.clock import monotonic_ms
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, SourceBatch
from walle_stream.stream.commands import Reply, RunTask
from walle_stream.wire.journal import decode_events, encode_events
from walle_stream.wire.rows import PartitionHead, TaskCounts

if TYPE_CHECKING:
    from walle_stream.actors.installing import Refused
    from walle_stream.wire.calls import CloudCall
    from walle_stream.wire.frame import FeatureRecord


class Done(msgspec.Struct):
    """What the runs of a turn did."""

    emitted: list[tuple[RunTask, list[tuple[bytes, bytes]]]] = []
    """Of runs that succeeded."""
    calls: list[tuple[RunTask, list[tuple[str, bytes]]]] = []
    """Of those among them that call the cloud."""
    dead_letters: list[DeadLetter] = []
    failures: int = 0
    """Runs that failed for good."""
    tasks: dict[str, TaskCounts] = {}
    """What became of the runs, by task."""
    changed: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
    """Of their states: (task, changes by device and key)."""


class Delivery(msgspec.Struct):
    """A batch on its way to its commit."""

    batch: SourceBatch
    """Its events are let go when they were taken: to keep them until the commit would
    cost the memory, and time, as they would have left the processor's caches."""
    delivered_ms: float
    """Monotonic clock when the batch arrived, or the source handed it over, for latencies."""
    handed_ms: float = 0.0
    """Monotonic clock when the batch was handed over."""
    part: bytes = b""
    """The events, encoded, once they were taken."""

    @classmethod
    def of(cls, batch: SourceBatch) -> "Delivery":
        """Hand a batch over, now."""
        arrived_ms, now_ms = batch.arrived_ms, monotonic_ms()
        return cls(batch, now_ms if arrived_ms is None else arrived_ms, now_ms)

    @staticmethod
    def count_events(messages: Iterable[object]) -> int:
        """Return how many events are in those messages of a host that are deliveries."""
        return sum(len(each.batch.events) for each in messages if isinstance(each, Delivery))

    def events(self) -> list[Event]:
        """Return the events, also of a batch that has let them go."""
        batch = self.batch
        if self.part:
            return decode_events(self.part)
        try:
            self.part = encode_events(batch.events)
        except OverflowError:
            # JSON knows no bounds, what is stored does
            events = set_large_numbers_aside(batch)
            self.part = encode_events(events)
            return events
        events, batch.events = batch.events, []
        return events


class Turn:
    """What was taken since the last commit, and what a commit makes of it. One thread.

    All that commit parts share of a commit travels here.
    """

    __slots__ = (
        "bodies",
        "calls",
        "changed_states",
        "dead_letters",
        "deadline_ms",
        "done",
        "due",
        "events",
        "exits",
        "head",
        "installs",
        "is_last",
        "leaving",
        "offset",
        "on_durable",
        "parts",
        "places",
        "raw",
        "records",
        "refused",
        "replies",
        "runs",
        "taken",
        "watermark_ms",
    )

    def __init__(
        self, head: PartitionHead, offset: bytes | None, watermark_ms: int, place: str = ""
    ) -> None:
        """Begin.

        Args:
            head: The last commit's, copied: it becomes this one's.
            offset: Of the last commit.
            watermark_ms: Of the partition.
            place: The last record that was read before, where the source names records.
        """
        self.head = head
        self.offset = offset
        self.watermark_ms = watermark_ms  # before it
        # taken
        self.taken = self.events = 0
        self.parts: list[bytes] = []
        """The batches' events, encoded."""
        self.places = Places(place)
        self.runs: list[RunTask] = []
        """Woken by events."""
        self.exits: list[tuple[float, int]] = []
        """(when a batch arrived, page exits in it)."""
        self.raw = RawRows()
        self.replies: list[Reply] = []
        """From the cloud side."""
        self.installs: list[tuple[str, str]] = []
        """(device id, id of its next task set)."""
        self.refused: Refused = {}
        self.dead_letters: list[DeadLetter] = []
        self.is_last = False
        """Whether none will follow for long: what waits for a later one goes now."""
        self.deadline_ms: float | None = None
        """Of the last turn of an opening: until when parts may wait for what is still to come."""
        # made
        self.done = Done()
        self.records: list[FeatureRecord] = []
        self.calls: list[CloudCall] = []
        """Of the cloud."""
        self.bodies: list[bytes] = []
        """Of frames, in the order of their numbers."""
        self.changed_states: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
        """What installations changed: (task, changes by device and key), behind the runs'."""
        self.due = 0
        """Devices dirty since this batch or an earlier one are written."""
        self.leaving: list[str] = []
        """Devices that leave memory."""
        self.on_durable: list[Callable[[], object]] = []
        """Called when the commit survives a power cut."""

    def add(self, batch: SourceBatch, events: int) -> None:
        """Count a batch whose events were taken."""
        head, source = self.head, batch.counts
        self.events += events
        self.offset = batch.offset
        self.dead_letters += batch.dead_letters
        head.is_ended = batch.is_end
        counters = head.counters
        counters.source_rows += source.source_rows
        counters.accepted_rows += source.accepted_rows
        counters.duplicate_rows += source.duplicate_rows
        counters.late_rows += source.late_rows
        counters.dead_letter_rows += source.dead_letter_rows
        counters.raw_bytes += source.raw_bytes
        if batch.raw is not None:
            self.raw.parts.append(batch.raw)
            self.raw.rows += source.source_rows
            self.raw.size_bytes += source.raw_bytes
