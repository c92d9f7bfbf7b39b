"""Latest state of the hosts of a run under Ray, combined for people and for the report."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.figures.status import (
    HostStatus,
    PartitionFigures,
    RunPhase,
    RunStatus,
    with_lags,
)
from walle_stream.app.figures.task_figures import task_figures
from walle_stream.app.ray.actors import Worker
from walle_stream.app.ray.host import HostState
from walle_stream.app.ray.logs import log_again
from walle_stream.clock import wall_ms
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.ports import Unread
from walle_stream.vm.counts import VmCounts, VmStatus

if TYPE_CHECKING:
    from walle_stream.tunnel.receiver import MergeCounts

_log = logging.getLogger(__name__)


class Watch:
    """The hosts of one run, and the latest state of each. One thread, the driver's."""

    def __init__(self, pipeline: str, task_names: Sequence[str], *, is_placed: bool) -> None:
        """Begin without hosts; ``is_placed``: partitions have no fixed host."""
        self.hosts: list[Worker] = []
        """Hosts by index."""
        self.latencies = Latencies()
        self.before: list[PartitionStatus] = []
        """Figures of the partitions at the start of the run."""
        self.cloud: dict[int, MergeCounts] = {}
        """Merge counts of each partition whose cloud side is stored with it."""
        self._pipeline, self._task_names, self._is_placed = pipeline, task_names, is_placed
        self._statuses: dict[int, PartitionStatus] = {}
        self._owners: dict[int, int] = {}  # hosts of partitions without a fixed host
        self._read: dict[tuple[str, int], int] = {}  # by host and life, if sources place
        self._started_ms = wall_ms()

    def begin(self) -> None:
        """Record the figures with which all hosts opened their partitions."""
        for host in self.hosts:
            self._statuses |= {status.number: status for status in host.opened[1]}
        self.before = self.status()

    def take(self, host: Worker, state: HostState) -> None:
        """Record the state of a host; restart a host that cannot continue.

        Raises:
            WalleError: The host failed for good.
        """
        log_again(state.logs, host.name)
        for number, counts in state.cloud.items():
            self.cloud[number] = max(counts, self.cloud.get(number, counts), key=_frames)
        self._read[host.name, host.restarts] = state.read_events
        for status in state.statuses:
            known = self._statuses.get(status.number)
            if known is not None and status.counters.commits > known.counters.commits:
                host.commits_came()
            self._see(status)
        if self._is_placed and state.phase == "reading":
            index = self.hosts.index(host)
            others = {number: owner for number, owner in self._owners.items() if owner != index}
            self._owners = others | {status.number: index for status in state.statuses}
        if state.failure is not None:
            if not host.outlives(state.failure):
                raise state.failure
            self._keep(state)
            host.restart(str(state.failure))
        elif state.phase == "worn out":
            self._keep(state)
            host.restart("its VMs have left too much memory behind", is_death=False)
        elif state.phase == "done":
            self._keep(state)
            host.step = "done"
            if state.missing_replies:
                _log.warning(
                    "%s: %d service calls have no reply: the next run takes the replies",
                    host.name,
                    state.missing_replies,
                )

    def status(self) -> list[PartitionStatus]:
        """Return the latest figures of all partitions."""
        return [self._statuses[number] for number in sorted(self._statuses)]

    def vm_status(self) -> tuple[VmCounts, list[VmStatus]]:
        """Return the counters of the hosts' pools, and their VMs."""
        counts, machines = VmCounts(), []
        for state in self.states():
            counts.add(state.vm_counts)
            machines += state.vms
        return counts, machines

    def host_status(self) -> list[HostStatus]:
        """Return the latest state of each host, with its unread input."""
        hosts = []
        for index, host in enumerate(self.hosts):
            state: HostState | None = host.state
            progress, unread = (-1.0, Unread()) if state is None else (state.progress, state.unread)
            is_at_work = state is not None and host.step != "done"
            hosts.append(
                HostStatus.of(
                    index,
                    progress,
                    unread,
                    pid=host.pid,
                    step=host.step,
                    restarts=host.restarts,
                    mailbox_bytes=state.mailbox_bytes if state and is_at_work else 0,
                    in_hand_events=state.in_hand_events if state and is_at_work else 0,
                    warm_partitions=len(state.warm) if state and is_at_work else 0,
                    address=state.address if state and is_at_work else "",
                )
            )
        return hosts

    @property
    def run_events(self) -> int:
        """Events of this run so far, in the processes of all hosts."""
        if self._is_placed:
            # the events of partitions before they came to this run are unknown
            return sum(self._read.values())
        return sum(map(_events, self._statuses.values())) - sum(map(_events, self.before))

    @property
    def progress(self) -> float:
        """Share of the source that the slowest host has read; see ``SourceReader.progress``."""
        shares = [host.state.progress if host.state else 0.0 for host in self.hosts]
        return min(shares, default=0.0)

    @property
    def sink_lags(self) -> dict[str, int]:
        """Number of features that each sink has yet to take, over all hosts."""
        lags = Counter[str]()
        for state in self.states():
            lags.update(state.sink_lags)
        return dict(lags)

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of service calls, over all hosts' present processes."""
        counts: dict[str, Counter[str]] = {}
        for state in self.states():
            for name, states in state.service_counts.items():
                counts.setdefault(name, Counter()).update(states)
        return counts

    def states(self) -> list[HostState]:
        """Return the latest states of the hosts that have reported one."""
        return [host.state for host in self.hosts if host.state is not None]

    def host_of(self, number: int) -> int:
        """Return the index of the host that has a partition, or had it last."""
        return self._owners.get(number, number % max(len(self.hosts), 1))

    def told(self, phase: RunPhase, stopped_by: str, **fields: Any) -> RunStatus:
        """Return the run's status, for people."""
        owners, statuses = self._owners if self._is_placed else None, self.status()
        if owners is not None and phase == "running":
            statuses = [status for status in statuses if status.number in owners]
        return RunStatus(
            pipeline=self._pipeline,
            phase=phase,
            pid=os.getpid(),
            started_ms=self._started_ms,
            stopped_by="" if phase in {"starting", "running"} else stopped_by,
            hosts=self.host_status(),
            task_names=list(self._task_names),
            owners=owners,
            tasks=task_figures(self._task_names, statuses),
            partitions=with_lags(
                [
                    PartitionFigures.of(
                        status.counters,
                        number=status.number,
                        host=self.host_of(status.number),
                        outbox_bytes=status.outbox_bytes,
                        watermark_ms=status.watermark_ms,
                        waiting_messages=status.waiting_messages,
                    )
                    for status in statuses
                ]
            ),
            **fields,
        )

    def _see(self, status: PartitionStatus) -> None:
        number, known = status.number, self._statuses.get(status.number)
        # a closing host also reports partitions that have moved to another host since
        if known is None or status.counters.commits >= known.counters.commits:
            self._statuses[number] = status

    def _keep(self, state: HostState) -> None:
        for status in state.statuses:
            self.latencies.merge(status.latencies)


def _frames(counts: "MergeCounts") -> int:
    return counts.frames


def _events(status: PartitionStatus) -> int:
    return status.counters.events
