"""Status of a run for people: a small file in the data directory, and its reader.

The run replaces the whole file, so that a reader finds the old or the new one. The file has
momentary values; committed values are in the databases.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from walle_stream.app.figures.task_figures import TaskFigures, task_figures
from walle_stream.app.queries.query import run_state
from walle_stream.clock import wall_ms
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.ports import Unread
from walle_stream.store.datadir import DataDir
from walle_stream.wire.rows import Counters, PartitionHead

type RunPhase = Literal["starting", "running", "ended", "failed", "killed"]
"""State of a run; ``killed``: no end was recorded, and no process has the directory open."""

_COUNTED: Final = ("events", "features", "commits", "dead_letters", "dropped_features")


class HostStatus(msgspec.Struct, kw_only=True):
    """State of a device host of a run."""

    index: int
    pid: int
    step: str
    """``starting``, ``opening``, ``opened``, ``running`` or ``done``."""
    restarts: int = 0
    unread: float = -1.0
    """Share of the source that the host has yet to read; below 0 when unknown."""
    unread_rows: int = -1
    """Unread records, where the source knows them; else below 0."""
    unread_bytes: int = -1
    """Unread bytes of the source; below 0 when unknown."""
    unread_ms: int = -1
    """Time from the event read last to the newest event; below 0 when unknown."""
    mailbox_bytes: int = 0
    """Memory of batches that were read and wait for a turn."""
    in_hand_events: int = 0
    """Events that were read and not yet committed."""
    warm_partitions: int = 0
    """Partitions of other hosts of which this host keeps a warm copy."""
    address: str = ""
    """Address of the host's node, in a cluster run."""

    @classmethod
    def of(cls, index: int, progress: float, unread: Unread, **fields: Any) -> Self:
        """Make the state from the reader's values; a negative ``progress`` is unknown."""
        return cls(
            index=index,
            unread=1.0 - progress if progress >= 0 else -1.0,
            unread_rows=unread.rows,
            unread_bytes=unread.size_bytes,
            unread_ms=unread.time_ms,
            **fields,
        )


class PartitionFigures(msgspec.Struct, kw_only=True):
    """Figures of a partition, at its last commit that the run reported."""

    number: int
    host: int
    """Index of the owning host, or -1 without one."""
    events: int
    features: int
    commits: int
    outbox_bytes: int = 0
    """Bytes of frames without acknowledgement."""
    dropped_features: int = 0
    """Features not sent because of ``spec.tunnel``'s onFull and maxAge."""
    dead_letters: int = 0
    """Refused records and failed runs that were kept."""
    waiting_messages: int = 0
    """Messages of the cloud for devices that were never seen."""
    watermark_ms: int = -1
    behind_ms: int = 0
    """Event time from its watermark to that of the most advanced partition.

    It shows how evenly partitions advance, and says nothing about unread input.
    """
    lag_ms: int = 0
    """Former name of ``behind_ms``."""
    is_ended: bool = False

    @classmethod
    def of(cls, counters: Counters, **fields: Any) -> Self:
        """Make the figures from the partition's counters."""
        counted = {name: getattr(counters, name) for name in _COUNTED}
        return cls(**counted, **fields)


class RunStatus(msgspec.Struct, kw_only=True):
    """State of the latest run over a data directory, running or ended."""

    v: int = 1
    pipeline: str
    runtime: str
    phase: RunPhase
    pid: int
    """Process that was started; 0 when it has ended."""
    started_ms: int = 0
    """Wall clock, epoch milliseconds."""
    updated_ms: int = 0
    stopped_by: str = ""
    services: ServiceCounts = {}
    """Outcomes of calls, by service and state, since the start of the cloud side's process."""
    hosts: list[HostStatus] = []
    partitions: list[PartitionFigures] = []
    owners: dict[int, int] | None = None
    """Hosts of the run's partitions, if the source places them; else None."""
    task_names: list[str] = []
    """Names of the definition's tasks."""
    tasks: list[TaskFigures] = []
    """Figures of the definition's tasks, then of installed tasks."""


def write_status(path: Path, status: RunStatus) -> None:
    """Replace the status file; a failed write, as on a full disk, does not stop the run."""
    status.updated_ms = wall_ms()
    new = path.with_suffix(".json.new")
    with suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor sets the mode
            file.write(msgspec.json.encode(status) + b"\n")
        new.replace(path)


def read_status(data_dir: Path) -> RunStatus:
    """Return the status of the current or last run over a data directory.

    Raises:
        StoreMissingError: There is no data directory.
    """
    with DataDir.open_read_only(data_dir) as opened:
        owner = opened.owner
        status = _told(opened.status_path)
        if status is None:
            status = RunStatus(pipeline=opened.meta.pipeline, runtime="", phase="killed", pid=0)
        if owner is None or status.pid != owner:
            # of an earlier run, or no run is active
            if owner is not None:
                status = RunStatus(
                    pipeline=opened.meta.pipeline, runtime="", phase="starting", pid=owner
                )
            elif status.phase in {"starting", "running"}:
                status.phase = "killed"
            status.partitions = []
    if owner is None:
        status.pid = 0
        for host in status.hosts:
            host.pid = 0
    if not status.partitions:
        heads = run_state(data_dir).heads
        owners = status.owners
        if owners is not None and status.phase == "running":
            # a partition that moved away leaves its database here
            heads = {number: head for number, head in heads.items() if number in owners}
        status.partitions = _committed(heads, owners, len(status.hosts))
        status.tasks = task_figures(status.task_names, heads.values())
    return status


def with_lags(partitions: list[PartitionFigures]) -> list[PartitionFigures]:
    """Fill in, in place, the event time by which each partition trails the most advanced one."""
    furthest = max((status.watermark_ms for status in partitions), default=-1)
    for status in partitions:
        if status.watermark_ms >= 0:
            status.behind_ms = status.lag_ms = furthest - status.watermark_ms
    return partitions


def _told(path: Path) -> RunStatus | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStatus)
    except (OSError, msgspec.DecodeError):
        return None  # no status yet, or one of another version


def _committed(
    heads: Mapping[int, PartitionHead], owners: Mapping[int, int] | None, hosts: int
) -> list[PartitionFigures]:
    if owners is None:
        owners = {number: number % hosts for number in heads} if hosts else {}
    return with_lags(
        [
            PartitionFigures.of(
                head.counters,
                number=number,
                host=owners.get(number, -1),
                watermark_ms=head.watermark_ms,
                waiting_messages=head.waiting_messages,
                is_ended=head.is_ended,
            )
            for number, head in heads.items()
        ]
    )
