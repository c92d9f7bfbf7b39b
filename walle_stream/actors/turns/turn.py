"""A turn of a partition: data from its batches until their commit."""

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
    """Results of the runs of a turn."""

    emitted: list[tuple[RunTask, list[tuple[bytes, bytes]]]] = []
    """Emits of the runs that succeeded."""
    calls: list[tuple[RunTask, list[tuple[str, bytes]]]] = []
    """Calls to the cloud of the same runs."""
    dead_letters: list[DeadLetter] = []
    failures: int = 0
    """Number of runs that failed for good."""
    tasks: dict[str, TaskCounts] = {}
    changed: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
    """Changes of the devices' states: (task, changes by device and key)."""


class Delivery(msgspec.Struct):
    """A batch on its way to its commit."""

    batch: SourceBatch
    delivered_ms: float
    """Monotonic clock at the batch's arrival or, if unknown, its delivery; for latencies."""
    handed_ms: float = 0.0
    """Monotonic clock at the delivery."""

    @classmethod
    def of(cls, batch: SourceBatch) -> "Delivery":
        """Deliver a batch now."""
        arrived_ms, now_ms = batch.arrived_ms, monotonic_ms()
        return cls(batch, now_ms if arrived_ms is None else arrived_ms, now_ms)

    @staticmethod
    def count_events(messages: Iterable[object]) -> int:
        """Return the number of events in those of a host's messages that are deliveries."""
        return sum(
            len(message.batch.events) for message in messages if isinstance(message, Delivery)
        )


class Turn:
    """Data of a turn since the last commit, for its commit. One thread.

    It carries all data that commit parts share.
    """

    def __init__(
        self, head: PartitionHead, offset: bytes | None, watermark_ms: int, place: str = ""
    ) -> None:
        """Begin after the last commit, with a copy of its head.

        ``place`` is the last record read before, where the source names records.
        """
        self.head = head
        self.offset = offset
        self.watermark_ms = watermark_ms  # before the turn
        # input
        self.taken = self.events = 0
        self.parts: list[bytes] = []
        """The batches' events, encoded."""
        self.origins = RunOrigins(place)
        self.runs: list[Runs] = []
        """Runs woken by each batch, in order, with runs of messages before and after them."""
        self.exits: list[tuple[float, int]] = []
        """(arrival of a batch, number of its page exits)."""
        self.raw = RawRows()
        self.told: list[Told] = []
        """Replies and messages to run after the events."""
        self.told_before: list[Told] = []
        """Messages that waited for their device's first event, to run before it."""
        self.installs: list[tuple[str, str]] = []
        """(device id, id of its next task set)."""
        self.refused: Refused = {}
        self.dead_letters: list[DeadLetter] = []
        self.is_last = False
        """Whether no turn follows for long, so that waiting data must go now."""
        self.deadline_ms: float | None = None
        """Deadline until which parts may wait for further data, in the last turn of an opening."""
        # output
        self.done = Done()
        self.records: list[FeatureRecord] = []
        self.calls: list[CloudCall] = []
        self.bodies: list[bytes] = []
        """Bodies of frames, in the order of their numbers."""
        self.changed_states: list[tuple[str, Mapping[str, Mapping[str, bytes | None]]]] = []
        """State changes by installations, after the runs': (task, changes by device and key)."""
        self.due = 0
        """Devices dirty since this batch or an earlier one are written."""
        self.leaving: list[str] = []
        self.is_written = False
        """Whether the commit has changed the store."""
        self.on_durable: list[Callable[[], object]] = []
        """Called when the commit survives a power cut."""

    def add(self, delivery: Delivery, woken: Woken) -> None:
        """Add a batch that was taken, with its effects."""
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
