"""A turn of a partition: what is taken from batches until their commit."""

from collections.abc import Iterable, Sequence

import msgspec

from walle_stream.actors.dead_letters import set_large_numbers_aside
from walle_stream.actors.ledger import RawRows
from walle_stream.actors.places import Places
from walle_stream.clock import monotonic_ms
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, SourceBatch
from walle_stream.stream.commands import RunTask, StreamCounts
from walle_stream.wire.frame import FeatureRecord
from walle_stream.wire.journal import decode_events, encode_events
from walle_stream.wire.rows import PartitionHead


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
    """What was taken since the last commit. One thread, the partition host's."""

    __slots__ = (
        "dead_letters",
        "events",
        "exits",
        "head",
        "installs",
        "offset",
        "parts",
        "places",
        "raw",
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
        self.taken = self.events = 0
        self.parts: list[bytes] = []
        self.places = Places(place)
        self.installs: list[tuple[str, str]] = []
        self.runs: list[RunTask] = []
        self.dead_letters: list[DeadLetter] = []
        self.exits: list[tuple[float, int]] = []
        self.raw = RawRows()

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


def count_commit(
    head: PartitionHead, stream: StreamCounts, records: Sequence[FeatureRecord]
) -> None:
    """Count what a commit has.

    Args:
        head: Gets the counts.
        stream: Of the partition's machine since the commit before.
        records: The commit's features.
    """
    counters = head.counters
    counters.devices += stream.new_devices
    counters.events += stream.events
    counters.late_events += stream.late_events
    counters.duplicate_events += stream.duplicate_events
    counters.page_sequences += stream.page_sequences
    counters.timed_out_pages += stream.timed_out_pages
    counters.reentered_pages += stream.reentered_pages
    counters.overflowed_pages += stream.overflowed_pages
    counters.missing_enters += stream.missing_enters
    counters.features += len(records)
    counters.feature_bytes += sum(len(record.feature) for record in records)
    counters.encoded_bytes += sum(len(record.encoding) for record in records)
    counters.commits += 1
