"""What the partitions of a run share, and what each says of itself."""

from collections.abc import Mapping
from typing import Final

import msgspec

from walle_stream.actors.installing import ProgramSource
from walle_stream.actors.journal import JOURNAL_EVENTS_DEFAULT
from walle_stream.actors.latency import Latencies
from walle_stream.actors.runs import FailurePolicy
from walle_stream.ports import DeadLetterSink
from walle_stream.store.in_hand import InHand
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import InstalledTask
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters

ACTIVE_DEVICES_DEFAULT: Final = 10_000
"""Devices of a partition kept in memory when the pipeline does not say."""


class PartitionPlan(msgspec.Struct, frozen=True):
    """What all partitions of a run share."""

    triggers: Mapping[str, tuple[tuple[str, ...], ...]]
    """For each task its trigger conditions."""
    versions: Mapping[str, str]
    """For each task its version."""
    policy: SequencePolicy
    in_hand: InHand
    """Where partitions note that they call a VM."""
    batch_events: int
    """Most events of a batch."""
    compression: str = "zstd"
    active_devices: int = ACTIVE_DEVICES_DEFAULT
    incarnation: str = ""
    """Of the data directory, for partitions that begin in it."""
    journal_events: int = JOURNAL_EVENTS_DEFAULT
    """Events that the journal holds before dirty devices are written."""
    pages: Mapping[str, frozenset[str]] = {}
    """For tasks that only events on certain pages wake: these."""
    only_device: str = ""
    """The one device of the run, where there is one: messages of others are passed over."""
    is_measured: bool = False
    """Whether the ledger also has what would have travelled otherwise."""
    on_error: Mapping[str, FailurePolicy] = {}
    """For tasks that say what becomes of failed runs: this."""
    sink: DeadLetterSink | None = None
    """Where dead letters go besides the data directory."""
    pipeline: str = ""
    """Name of the pipeline, for the sink."""
    state_versions: Mapping[str, int] = {}
    """Layouts of the tasks' states; 1 where it is not named."""
    programs: ProgramSource | None = None
    """Loads what is installed while the host runs; None: nothing is."""

    def tasks(self) -> dict[str, InstalledTask]:
        """Return the definition's tasks by name, as devices have them."""
        on_error = {name: msgspec.structs.astuple(each) for name, each in self.on_error.items()}
        default = msgspec.structs.astuple(FailurePolicy())
        return {
            name: InstalledTask(
                self.versions[name],
                triggers,
                name,
                self.state_versions.get(name, 1),
                on_error=on_error.get(name, default),
            )
            for name, triggers in self.triggers.items()
        }


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
