"""Report of a run: the last line of ``walle run --json``.

Counters are part of every commit and cumulative for the data directory; times are of this run. The
field names are stable for other programs.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import msgspec

from walle_stream.actors.plan.latency import LatencyMs
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.ledger import LedgerReport
from walle_stream.app.figures.task_figures import TaskFigures, task_figures, task_problems
from walle_stream.tunnel.receiver import MergeCounts
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters


class CloudReport(msgspec.Struct, frozen=True):
    """Counters of the cloud side, cumulative for the data directory."""

    features: int
    devices: int
    duplicates_dropped: int
    gaps: int
    frames_refused: int

    @classmethod
    def of(cls, counts: Mapping[int, MergeCounts]) -> Self:
        """Add up the counts of all partitions."""
        names = cls.__struct_fields__
        return cls(**{name: sum(getattr(c, name) for c in counts.values()) for name in names})


class RunReport(msgspec.Struct, frozen=True):
    """The result of one run of a pipeline."""

    pipeline: str
    data_dir: str
    stopped_by: str
    """``end`` (the source's natural end), ``limit``, ``SIGINT`` or ``SIGTERM``."""
    counters: Counters
    cloud: CloudReport | None
    """None if another program has the cloud side."""
    ledger: LedgerReport
    """Bytes that each task sent, compared with the raw rows."""
    tasks: list[TaskFigures]
    """Tasks of the definition in its order, then installed tasks."""
    problems: list[str]
    """One line per task of the definition that never fired, or failed in every run."""
    exit_to_commit_ms: LatencyMs
    """Latency from the arrival of a page exit to the return of the write batch with its features.

    Arrival is ``SourceBatch.arrived_ms``, or the delivery to the device's host if the source gives
    none. For an exit that was held (``spec.sequence.outOfOrder``) the latency begins at the arrival
    of the events that released it.
    """
    run_events: int
    """Events of this run alone."""
    wall_s: float
    cpu_s: float
    """CPU seconds of all threads and processes of this run."""

    @classmethod
    def of(
        cls,
        assembly: Assembly,
        before: Iterable[PartitionStatus],
        statuses: Collection[PartitionStatus],
        stopped_by: str,
        **fields: Any,
    ) -> Self:
        """Add up the partitions' counters at the start and end; ``fields`` has the other fields."""
        counters, ledger = Counters(), Ledger()
        for status in statuses:
            counters.add(status.counters)
            ledger = ledger.plus(status.ledger)
        tasks = task_figures(assembly.task_names, statuses)
        return cls(
            pipeline=assembly.name,
            stopped_by=stopped_by,
            counters=counters,
            ledger=LedgerReport.of(counters, ledger),
            tasks=tasks,
            problems=task_problems(
                task_figures(assembly.task_names, before),
                tasks,
                counters,
                is_whole=assembly.is_whole and stopped_by == "end",
            ),
            **fields,
        )

    @property
    def events_per_cpu_second(self) -> float:
        """Events of this run per CPU second; 0 when nothing was read."""
        return self.run_events / self.cpu_s if self.cpu_s > 0 else 0.0

    def to_json(self) -> bytes:
        """Return the stable JSON object as one line, without the line's end."""
        counters = msgspec.structs.asdict(self.counters)
        return msgspec.json.encode(
            {
                "pipeline": self.pipeline,
                "data_dir": self.data_dir,
                "stopped_by": self.stopped_by,
                **counters,
                "cloud": self.cloud,
                "ledger": self.ledger.to_builtins(),
                "tasks": self.tasks,
                "problems": self.problems,
                "exit_to_commit_ms": self.exit_to_commit_ms,
                "run_events": self.run_events,
                "wall_s": round(self.wall_s, 3),
                "cpu_s": round(self.cpu_s, 3),
                "events_per_cpu_second": round(self.events_per_cpu_second, 1),
            }
        )
