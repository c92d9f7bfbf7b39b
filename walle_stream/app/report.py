"""What a run did, as one object: the last line of ``walle run --json``.

Counters are cumulative for the data directory (they are part of every commit);
times are of this run. The field names are stable for other programs.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

import msgspec

from walle_stream.actors.plan.latency import LatencyMs
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.ledger import LedgerReport
from walle_stream.app.figures.task_figures import TaskFigures, task_figures, task_problems
from walle_stream.errors import DataLostError
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters


class CloudReport(msgspec.Struct, frozen=True):
    """What the cloud side holds, cumulative for the data directory."""

    features: int
    devices: int
    duplicates_dropped: int
    gaps: int
    frames_refused: int
    missing_features: int = 0
    """In the gaps, and not sent again since."""
    missing_frames: int = 0
    """Of partitions: numbers that were passed over."""
    differing_features: int = 0
    """Dropped, though another feature has their number."""
    told: int = 0
    """Of these, those that were reported before."""

    @property
    def losses(self) -> int:
        """All that is missing, or differs."""
        return self.missing_features + self.missing_frames + self.differing_features


class RunReport(msgspec.Struct, frozen=True):
    """The result of one run of a pipeline."""

    pipeline: str
    data_dir: str
    stopped_by: str
    """``end`` (the source's natural end), ``limit``, ``SIGINT`` or ``SIGTERM``."""
    counters: Counters
    cloud: CloudReport | None
    """None where the cloud side is another program's."""
    ledger: LedgerReport
    """What each task sent, beside the raw rows."""
    tasks: list[TaskFigures]
    """Those of the definition in its order, then what was installed besides."""
    problems: list[str]
    """A line for each task of the definition of which every run failed, or that never fired."""
    exit_to_commit_ms: LatencyMs
    """From the arrival of a page exit, which is its delivery to its device's host where the
    source does not say (``SourceBatch.arrived_ms``), to the return of the write batch that
    holds its features. Of an exit that was held (``spec.sequence.outOfOrder``), from the arrival
    of the events that released it: how long it was held is not in it."""
    run_events: int
    """Events of this run alone."""
    wall_s: float
    cpu_s: float
    """CPU seconds of all threads and processes of this run."""
    untold_losses: int = 0
    """What devices found lost and no run has reported yet; see ``Counters``."""
    lost_in: Mapping[int, int] = {}
    """By partition with such losses: all of its losses."""

    @classmethod
    def of(
        cls,
        assembly: Assembly,
        before: Iterable[PartitionStatus],
        statuses: Collection[PartitionStatus],
        stopped_by: str,
        **fields: Any,
    ) -> Self:
        """Add up what partitions count at the run's start and end; ``fields`` are the others."""
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
            untold_losses=sum(status.untold_losses for status in statuses),
            lost_in={
                status.number: status.counters.losses for status in statuses if status.untold_losses
            },
            **fields,
        )

    @property
    def events_per_cpu_second(self) -> float:
        """Events of this run by its CPU seconds; 0 when nothing was read."""
        return self.run_events / self.cpu_s if self.cpu_s > 0 else 0.0

    @property
    def losses(self) -> str:
        """What is lost for the cloud side, in words, cumulative; empty for nothing."""
        counters, cloud = self.counters, self.cloud
        found = {
            "features that their devices have no more": counters.lost_features,
            "frames that may have been reports": counters.lost_reports,
        }
        if cloud is not None:
            found |= {
                "features missing in the cloud": cloud.missing_features,
                "frames missing in the cloud": cloud.missing_frames,
                "features that differ from those that the cloud had": cloud.differing_features,
            }
        return ", ".join(f"{count:,} {what}" for what, count in found.items() if count)

    def check(self) -> None:
        """Refuse to pass over a loss that no earlier run reported.

        Raises:
            DataLostError: Something is lost that was not reported.
        """
        new = self.untold_losses
        if self.cloud is not None:
            new += self.cloud.losses - self.cloud.told
        if new > 0:
            raise DataLostError(
                f"lost for the cloud side: {self.losses}: a disk lost what was acknowledged, in a "
                "power cut (spec.state.sync) or with a restored copy; the run is done otherwise",
                new,
            )

    def to_json(self) -> bytes:
        """Return the stable JSON object, one line without the line's end."""
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
                "untold_losses": self.untold_losses,
                "run_events": self.run_events,
                "wall_s": round(self.wall_s, 3),
                "cpu_s": round(self.cpu_s, 3),
                "events_per_cpu_second": round(self.events_per_cpu_second, 1),
            }
        )
