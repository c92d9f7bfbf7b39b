"""A turn of a partition: what is taken from batches until their commit."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from walle_stream.actors.turns.dead_letters import refused_dead_letter
from walle_stream.actors.turns.ledger import RawRows
from walle_stream.actors.turns.origins import RunOrigins
from walle_stream.clock import monotonic_ms
from walle_stream.ports import DeadLetter, SourceBatch
from walle_stream.stream.commands import Runs, RunTask, Told, Woken
from walle_stream.wire.rows import PartitionHead, TaskCounts

if TYPE_CHECKING:
    from walle_stream.actors.turns.installing import Refused
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
    changed: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
    """Of their states: (task, changes by device and key)."""


class Delivery(msgspec.Struct):
    """A batch on its way to its commit."""

    batch: SourceBatch
    delivered_ms: float
    """Monotonic clock when the batch arrived, or the source handed it over, for latencies."""
    handed_ms: float = 0.0
    """Monotonic clock when the batch was handed over."""

    @classmethod
    def of(cls, batch: SourceBatch) -> "Delivery":
        """Hand a batch over, now."""
        arrived_ms, now_ms = batch.arrived_ms, monotonic_ms()
        return cls(batch, now_ms if arrived_ms is None else arrived_ms, now_ms)

    @staticmethod
    def count_events(messages: Iterable[object]) -> int:
        """Return how many events are in those messages of a host that are deliveries."""
        return sum(
            len(message.batch.events) for message in messages if isinstance(message, Delivery)
        )


class Turn:
    """What was taken since the last commit, and what a commit makes of it. One thread.

    All that commit parts share of a commit travels here.
    """

    def __init__(
        self, head: PartitionHead, offset: bytes | None, watermark_ms: int, place: str = ""
    ) -> None:
        """Begin behind the last commit; its head is copied and becomes this one's.

        ``place`` is the last record that was read before, where the source names records.
        """
        self.head = head
        self.offset = offset
        self.watermark_ms = watermark_ms  # before it
        # taken
        self.taken = self.events = 0
        self.parts: list[bytes] = []
        """The batches' events, encoded."""
        self.origins = RunOrigins(place)
        self.runs: list[Runs] = []
        """Woken by each batch, in order; by what came down before and behind them."""
        self.exits: list[tuple[float, int]] = []
        """(when a batch arrived, page exits in it)."""
        self.raw = RawRows()
        self.told: list[Told] = []
        """What came down, and is run behind the events."""
        self.told_before: list[Told] = []
        """What waited for its device's first event, and is run before it."""
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
        self.bodies: list[bytes] = []
        """Of frames, in the order of their numbers."""
        self.changed_states: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
        """What installations changed: (task, changes by device and key), behind the runs'."""
        self.due = 0
        """Devices dirty since this batch or an earlier one are written."""
        self.leaving: list[str] = []
        self.is_written = False
        """Whether it has changed anything in the store; of one that was committed."""
        self.on_durable: list[Callable[[], object]] = []
        """Called when the commit survives a power cut."""

    def add(self, delivery: Delivery, woken: Woken) -> None:
        """Count a batch that was taken, and what came of it."""
        batch, head = delivery.batch, self.head
        events, source, counters = batch.events, batch.counts, head.counters
        self.taken += 1
        self.events += woken.events
        self.parts.append(events.encoded)
        self.offset = batch.offset
        head.is_ended = batch.is_end
        self.origins.add(woken.runs, batch)
        self.runs.append(woken.runs)
        if woken.exits:
            self.exits.append((delivery.delivered_ms, woken.exits))
        self.dead_letters += batch.dead_letters
        self.dead_letters += [refused_dead_letter(row, batch.origins) for row in woken.refused]
        counters.add(source)
        counters.accepted_rows -= len(events.refused)
        counters.dead_letter_rows += len(events.refused)
        if batch.raw is not None:
            self.raw.parts.append(batch.raw)
            self.raw.rows += source.source_rows
            self.raw.size_bytes += source.raw_bytes
