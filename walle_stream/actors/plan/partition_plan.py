"""Settings that the partitions of a run share, and figures of each partition."""

from collections.abc import Mapping
from typing import Final

import msgspec

from walle_stream.actors.plan.journal import JOURNAL_EVENTS_DEFAULT
from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_sets import ProgramSource
from walle_stream.ports import DeadLetterSink, InstalledTask, ProofOf
from walle_stream.store.in_hand import InHand
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters, TaskCounts

ACTIVE_DEVICES_DEFAULT: Final = 10_000


class PartitionPlan(msgspec.Struct, frozen=True):
    """Settings of all partitions of a run."""

    tasks: Mapping[str, InstalledTask]
    policy: SequencePolicy
    in_hand: InHand
    batch_events: int
    compression: str = "zstd"
    active_devices: int = ACTIVE_DEVICES_DEFAULT
    incarnation: str = ""
    """Incarnation of the data directory, for partitions that begin in it."""
    journal_events: int = JOURNAL_EVENTS_DEFAULT
    """Number of events that the journal holds before dirty devices are written."""
    only_device: str = ""
    """Only device of the run, if it has one; messages for other devices are skipped."""
    is_measured: bool = False
    """Whether the ledger also measures alternatives to the bytes sent."""
    sink: DeadLetterSink | None = None
    pipeline: str = ""
    report_ms: int = 0
    """Minimum time between two reports of the tasks' runs; 0 for no reports."""
    reported_as: Mapping[str, tuple[str, str]] = {}
    """Name and version in the cloud, for the definition's tasks that are reported."""
    proof_of: ProofOf | None = None
    """Source of the receipts that go with reports; None for none."""
    programs: ProgramSource | None = None
    """Loader of programs installed while the host runs; None if there are none."""

    warned: set[str] = msgspec.field(default_factory=set)
    """Tasks whose script already caused a warning in this process."""

    @property
    def triggers(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Trigger conditions of each task."""
        return {name: task.triggers for name, task in self.tasks.items()}


class PartitionStatus(msgspec.Struct):
    """Figures of one partition, for reports and metrics."""

    number: int
    counters: Counters
    latencies: Latencies
    active_devices: int
    outbox_bytes: int
    watermark_ms: int
    run_events: int
    ledger: Ledger
    tasks: dict[str, TaskCounts] = {}
    waiting_messages: int = 0
    """Messages for devices that were never seen."""
