"""What the partitions of a run share, and what each says of itself."""

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
    """What all partitions of a run share."""

    tasks: Mapping[str, InstalledTask]
    policy: SequencePolicy
    in_hand: InHand
    batch_events: int
    compression: str = "zstd"
    active_devices: int = ACTIVE_DEVICES_DEFAULT
    incarnation: str = ""
    """Of the data directory, for partitions that begin in it."""
    journal_events: int = JOURNAL_EVENTS_DEFAULT
    """Events that the journal holds before dirty devices are written."""
    only_device: str = ""
    """The one device of the run, where there is one: messages of others are passed over."""
    is_measured: bool = False
    """Whether the ledger also has what would have travelled otherwise."""
    sink: DeadLetterSink | None = None
    pipeline: str = ""
    report_ms: int = 0
    """Shortest time between two reports of how tasks do; 0 for none."""
    reported_as: Mapping[str, tuple[str, str]] = {}
    """For tasks of the definition that are reported: name and version as the cloud knows them."""
    proof_of: ProofOf | None = None
    """What devices show with their reports; None: nothing."""
    programs: ProgramSource | None = None
    """Loads what is installed while the host runs; None: nothing is."""

    warned: set[str] = msgspec.field(default_factory=set)
    """Tasks whose script was warned of in this process."""

    @property
    def triggers(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """For each task its trigger conditions."""
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
    """For devices that were never seen."""
