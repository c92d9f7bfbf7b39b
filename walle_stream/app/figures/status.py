"""How a run goes, for people: a small file in the data directory, and who reads it.

The run replaces the file as a whole, so that a reader finds one or the other.
What is in it is of the moment; what was committed is in the databases.
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
"""``killed``: nobody said that it ended, and nobody has the directory open."""

_COUNTED: Final = ("events", "features", "commits", "dead_letters", "dropped_features")


class HostStatus(msgspec.Struct, kw_only=True):
    """A device host of a run."""

    index: int
    pid: int
    step: str
    """``starting``, ``opening``, ``opened``, ``running`` or ``done``."""
    restarts: int = 0
    unread: float = -1.0
    """The share of the source that it has yet to read, below 0 when unknown."""
    unread_rows: int = -1
    """The same in records, where the source knows them; else below 0."""
    unread_bytes: int = -1
    """The same in bytes of the source."""
    unread_ms: int = -1
    """The same in time: from the event read last to the newest."""
    mailbox_bytes: int = 0
    """Memory of batches that were read and wait for a turn."""
    in_hand_events: int = 0
    """Events that were read, and that no commit has yet."""
    warm_partitions: int = 0
    """Of other hosts, of which it keeps a copy of their last snapshot."""
    address: str = ""
    """Of its node, in a cluster's run."""

    @classmethod
    def of(cls, index: int, progress: float, unread: Unread, **fields: Any) -> Self:
        """Make it of what the host's reader says; a share below 0 is unknown."""
        return cls(
            index=index,
            unread=1.0 - progress if progress >= 0 else -1.0,
            unread_rows=unread.rows,
            unread_bytes=unread.size_bytes,
            unread_ms=unread.time_ms,
            **fields,
        )


class PartitionFigures(msgspec.Struct, kw_only=True):
    """A partition, as of its last commit that the run told of."""

    number: int
    host: int
    """-1 when nobody owns it."""
    events: int
    features: int
    commits: int
    outbox_bytes: int = 0
    """Frames without acknowledgement."""
    dropped_features: int = 0
    """That were not sent, by ``spec.tunnel``'s onFull and maxAge."""
    dead_letters: int = 0
    """Refused records and failed runs, kept for a look."""
    waiting_messages: int = 0
    """Of the cloud, for devices that were never seen."""
    watermark_ms: int = -1
    behind_ms: int = 0
    """Event time between its watermark and that of the partition that is furthest: how evenly
    they go on, and nothing of what is unread."""
    lag_ms: int = 0
    """The same, under its former name."""
    is_ended: bool = False

    @classmethod
    def of(cls, counters: Counters, **fields: Any) -> Self:
        """Make it of what the partition counts."""
        counted = {name: getattr(counters, name) for name in _COUNTED}
        return cls(**counted, **fields)


class RunStatus(msgspec.Struct, kw_only=True):
    """How the last run over a data directory goes, or went."""

    v: int = 1
    pipeline: str
    runtime: str
    phase: RunPhase
    pid: int
    """Of the process that was started; 0 when it is gone."""
    started_ms: int = 0
    """Wall clock, epoch milliseconds."""
    updated_ms: int = 0
    stopped_by: str = ""
    services: ServiceCounts = {}
    """What became of calls, by service and state, since the cloud side's process started."""
    hosts: list[HostStatus] = []
    partitions: list[PartitionFigures] = []
    owners: dict[int, int] | None = None
    """Hosts of the partitions that the run has, where the source places them; else None."""
    task_names: list[str] = []
    """Of the definition."""
    tasks: list[TaskFigures] = []
    """Those, and what was installed besides."""


def write_status(path: Path, status: RunStatus) -> None:
    """Replace the file; a disk that is full is no reason to stop a run."""
    status.updated_ms = wall_ms()
    new = path.with_suffix(".json.new")
    with suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, for its mode
            file.write(msgspec.json.encode(status) + b"\n")
        new.replace(path)


def read_status(data_dir: Path) -> RunStatus:
    """Say how the run over a data directory goes, or how the last one went.

    Raises:
        StoreMissingError: There is none.
    """
    with DataDir.open_read_only(data_dir) as opened:
        owner = opened.owner
        status = _told(opened.status_path)
        if status is None:
            status = RunStatus(pipeline=opened.meta.pipeline, runtime="", phase="killed", pid=0)
        if owner is None or status.pid != owner:
            # of another run than goes on now, or none does
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
            # a partition that went elsewhere leaves its database here
            heads = {number: head for number, head in heads.items() if number in owners}
        status.partitions = _committed(heads, owners, len(status.hosts))
        status.tasks = task_figures(status.task_names, heads.values())
    return status


def with_lags(partitions: list[PartitionFigures]) -> list[PartitionFigures]:
    """Fill in, in place, how far each partition is behind the furthest."""
    furthest = max((status.watermark_ms for status in partitions), default=-1)
    for status in partitions:
        if status.watermark_ms >= 0:
            status.behind_ms = status.lag_ms = furthest - status.watermark_ms
    return partitions


def _told(path: Path) -> RunStatus | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStatus)
    except (OSError, msgspec.DecodeError):
        return None  # no run was told of yet, or by another version


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
