"""Runtime ``local``: a whole pipeline in one process.

The caller's thread reads the source. Each device host has a thread that runs its partitions and
merges their frames. One thread answers calls, and one per sink delivers features. This module
decides nothing about data: it opens parts, passes batches on, and closes in an order that loses
nothing.
"""

import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Event as Flag
from typing import Any, Final

from walle_stream.actors.actor import ActorRef
from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.device_host import (
    Close,
    DeviceHost,
    GetOffsets,
    GetStatus,
    Pull,
    Settle,
    delivery_events,
)
from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.actors.turns.turn import Delivery
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.status import HostStatus, RunPhase, RunStatus, write_status
from walle_stream.app.options import RunOptions
from walle_stream.app.programs.installation import Installation
from walle_stream.app.report import CloudReport, RunReport
from walle_stream.clock import monotonic_ms, process_cpu_s, wall_ms
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.errors import ActorDeadError
from walle_stream.ports import SourceBatch, SourceReader, Unread
from walle_stream.vm.counts import VmCounts, VmStatus

_log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
"""Maximum time for a run to finish its start after a stop is requested."""

FINISH_TIMEOUT_S = 10.0
"""Maximum wait for the current runs after a stop is requested."""

REPLIES_TIMEOUT_S = 10.0
"""Maximum wait for the replies to calls, at the source's natural end."""

FLUSH_TIMEOUT_S = 5.0
"""Maximum wait for acknowledgements at the end of a run."""

TELL_MS: Final = 1_000.0
"""Interval between updates of the status file."""

type OnProgress = Callable[[float, int], None]
"""Called about ten times a second with (share of the source read, events)."""


type Beside = Callable[["LocalRun"], AbstractContextManager[object]]
"""Made when a run is ready, entered while events are read, left before the hosts close."""

WORN_OUT: Final = "worn out"
"""Stop reason of a run that must continue in a new process."""


@contextmanager
def calm_collector() -> Iterator[None]:
    """Make the process's garbage collector run less often while events are processed.

    The previous settings are restored afterwards: a process may do other work besides running
    pipelines, and frozen objects are hidden from ``gc.get_referrers``.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)  # events carry no cycles; saves 8 % of the CPU
    try:
        yield
    finally:
        # the run's remaining objects are in the oldest generation now: a full collection, just
        # before most of them are freed, takes 3 % of a short run's CPU
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


class LocalRun:
    """One run of a pipeline in this process. Use once."""

    def __init__(
        self, assembly: Assembly, options: RunOptions, beside: Beside | None = None
    ) -> None:
        """Prepare the run without opening anything."""
        self._beside = beside
        self._assembly = assembly
        self._options = options
        self._stop = Flag()
        self._stopped_by = "end"
        self._hosts: list[ActorRef] = []
        self._devices: list[DeviceHost] = []
        self._sizers: list[BatchSizer] = []
        self._readers: Sequence[SourceReader] = ()
        self._installation: Installation | None = None
        self.run_events = 0
        self.is_ready = False
        self._is_ended = False
        self._started_ms = wall_ms()
        self._told_ms = 0.0

    def stop(self, reason: str) -> None:
        """Ask the run to finish the events already read, commit, flush and end.

        Callable from a signal handler. The source releases nothing early, so the next run continues
        as if there had been no stop.
        """
        if not self._stop.is_set():
            self._stopped_by = reason
            self._stop.set()
            # hosts may wait for room in a tunnel whose broker is down
            self._assembly.relax_tunnel()

    def run(
        self, on_progress: OnProgress | None = None, cpu_before_s: float | None = None
    ) -> RunReport:
        """Run to the end of the source, to the limit or to ``stop``; blocks.

        Args:
            on_progress: Called in this thread.
            cpu_before_s: CPU seconds that do not count for this run; None: all used so far. The
                command line passes 0, so that its start counts.

        Raises:
            WalleError: A part failed for good; committed data stays.
        """
        started_ms = monotonic_ms()
        started_cpu_s = process_cpu_s() if cpu_before_s is None else cpu_before_s
        with ExitStack() as stack:
            stack.enter_context(calm_collector())
            assembly = self._assembly
            assembly.open(stack, self._options)
            self._start_actors(stack)
            offsets: dict[int, bytes] = {}
            before: list[PartitionStatus] = []
            for host in self._hosts:
                offsets.update(self._ask(host, GetOffsets()))
                before.extend(self._ask(host, GetStatus()))
            if not assembly.is_placed:
                assembly.mark_open()
                assembly.take_messages()
            readers = self._readers = self._open_readers(offsets, stack)
            self.is_ready = True
            stack.push(self._tell_failure)
            self._tell("running")
            on_progress = on_progress or (lambda _ratio, _events: None)
            with nullcontext() if self._beside is None else self._beside(self):
                if len(readers) == len(self._hosts):
                    self._pull(readers, on_progress)
                else:
                    self._read(readers[0], on_progress)
            if self._options.limit is not None and not self._is_ended and not self._stop.is_set():
                self._stopped_by = "limit"
            self._settle()
            statuses = self._close_hosts()
            self._tell("ended")
        return RunReport.of(
            assembly,
            before,
            statuses,
            self._stopped_by,
            data_dir=str(self._options.data_dir),
            cloud=CloudReport.of(assembly.cloud_counts) if assembly.has_cloud else None,
            exit_to_commit_ms=Latencies.of(status.latencies for status in statuses).report(),
            run_events=sum(status.run_events for status in statuses),
            wall_s=(monotonic_ms() - started_ms) / 1000.0,
            cpu_s=process_cpu_s() - started_cpu_s,
        )

    def status(self) -> list[PartitionStatus]:
        """Return the figures of all partitions at their last commits; never waits."""
        return [status for host in self._devices for status in host.peek()]

    def vm_status(self) -> tuple[VmCounts, list[VmStatus]]:
        """Return the counters of the pool and its VMs, for metrics."""
        pool = self._assembly.pool
        return pool.counts, pool.machines

    def host_status(self, step: str = "running") -> list[HostStatus]:
        """Return the state of each host and its reader's unread input; never waits."""
        pid, readers = os.getpid(), self._readers
        hosts = []
        for index, host in enumerate(self._hosts):
            progress, unread = -1.0, Unread()
            read_events = Delivery.count_events(host.waiting)
            if readers:  # one for each host, or one for all
                reader = readers[index % len(readers)]
                progress, unread = reader.progress, reader.unread
            hosts.append(
                HostStatus.of(
                    index,
                    progress,
                    unread,
                    pid=pid,
                    step=step,
                    mailbox_bytes=host.mailbox_bytes,
                    in_hand_events=self._devices[index].in_hand_events + read_events,
                )
            )
        return hosts

    @property
    def task_names(self) -> list[str]:
        """Names of the definition's tasks, for metrics."""
        return self._assembly.task_names

    @property
    def sink_lags(self) -> Mapping[str, int]:
        """Number of features that each sink has yet to take."""
        return self._assembly.sink_lags

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of service calls, by service."""
        return self._assembly.service_counts

    @property
    def installation(self) -> Installation:
        """Installer of tasks on the run's devices; usable while ``is_ready``, in any thread."""
        if self._installation is None:
            assembly = self._assembly
            self._installation = Installation(
                self._hosts,
                self._ask,
                assembly.installed,
                {task.name: task.installed() for task in assembly.tasks},
                assembly.partition_of,
            )
        return self._installation

    def _start_actors(self, stack: ExitStack) -> None:
        assembly = self._assembly
        host_count = min(self._options.hosts, len(assembly.partitions))
        for index in range(host_count):
            numbers = assembly.partitions[index::host_count]
            sizer = BatchSizer(
                assembly.latency_target_ms, assembly.batch_events, partitions=len(numbers)
            )
            self._sizers.append(sizer)
            host = assembly.make_host(index, numbers, sizer)
            self._devices.append(host)
            ref = ActorRef(host, assembly.mailbox_bytes)
            self._hosts.append(ref)
            stack.callback(self._end, ref)

    def _open_readers(
        self, offsets: Mapping[int, bytes], stack: ExitStack
    ) -> Sequence[SourceReader]:
        assembly, limit = self._assembly, self._options.limit
        if assembly.is_placed:
            readers = [assembly.join_source(host, limit) for host in self._devices]
        else:
            readers = [assembly.open_source(offsets, limit)]
        for reader in readers:
            stack.callback(reader.close)
        return readers

    def _pull(self, readers: Sequence[SourceReader], on_progress: OnProgress) -> None:
        pulls = []
        for host, reader in zip(self._hosts, readers, strict=True):
            pulls.append(Pull(reader, host.tell))
            host.tell(pulls[-1])
        for pull in pulls:
            is_done = False
            while not is_done:  # at least once, so that even a short run is checked
                self.run_events = sum(pull.events for pull in pulls)
                for host in self._hosts:
                    if not host.is_alive:
                        raise self._cause(host, ActorDeadError(f"actor {host.name} has stopped"))
                self._look_after(on_progress)
                if self._stop.is_set():
                    for each in pulls:
                        each.stop.set()
                is_done = pull.done.wait(0.1)
        self.run_events = sum(pull.events for pull in pulls)
        self._is_ended = any(pull.is_ended for pull in pulls)

    def _look_after(self, on_progress: OnProgress) -> None:
        self._assembly.check_cloud()
        if monotonic_ms() - self._told_ms > TELL_MS:
            self._tell("running")
        if self._assembly.pool.is_worn_out and self._options.limit is None:
            self.stop(WORN_OUT)
        progress = min(reader.progress for reader in self._readers)
        on_progress(progress, self.run_events)

    def _read(self, reader: SourceReader, on_progress: OnProgress) -> None:
        shown_ms = 0.0
        most = delivery_events(self._assembly.partition_count)
        while not self._stop.is_set() and not reader.is_done:
            reader.batch_events = min(most, *(sizer.events for sizer in self._sizers))
            self._deliver(reader.read())
            now_ms = monotonic_ms()
            if now_ms - shown_ms > 100.0:  # noqa: PLR2004 - ten times a second
                shown_ms = now_ms
                self._look_after(on_progress)
        if self._stop.is_set():
            self._deliver(reader.drain())

    def _deliver(self, batches: Sequence[SourceBatch]) -> None:
        hosts, count = self._hosts, len(self._hosts)
        for batch in batches:
            self.run_events += len(batch.events)
            self._is_ended = self._is_ended or batch.is_end
            try:
                hosts[batch.partition % count].tell(Delivery.of(batch), batch.size_bytes)
            except ActorDeadError as error:
                raise self._cause(hosts[batch.partition % count], error) from error

    def _tell(self, phase: RunPhase) -> None:
        self._told_ms = monotonic_ms()
        devices = enumerate(self._devices)
        owners = {each.number: index for index, host in devices for each in host.peek()}
        status = RunStatus(
            pipeline=self._assembly.name,
            runtime="local",
            phase=phase,
            pid=os.getpid(),
            started_ms=self._started_ms,
            stopped_by="" if phase == "running" else self._stopped_by,
            hosts=self.host_status("running" if phase == "running" else "done"),
            owners=owners if self._assembly.is_placed else None,
            services=self.service_counts,
            task_names=self.task_names,
        )
        write_status(self._assembly.status_path, status)

    def _tell_failure(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self._stopped_by = str(error)
            self._tell("failed")

    def _settle(self) -> None:
        # after a stop or a limit the next run takes the replies
        if self._stopped_by != "end":
            return
        deadline_ms = monotonic_ms() + REPLIES_TIMEOUT_S * 1000.0
        missing = 0
        for host in self._hosts:
            left_s = max(deadline_ms - monotonic_ms(), 0.0) / 1000.0
            missing += self._ask(host, Settle(left_s, self._stop.is_set))
            self._assembly.check_cloud()
        if missing:
            _log.warning(
                "%d service calls have no reply after %g s: the next run takes the replies",
                missing,
                REPLIES_TIMEOUT_S,
            )

    def _close_hosts(self) -> list[PartitionStatus]:
        statuses: list[PartitionStatus] = []
        for host in self._hosts:
            self._ask(host, Close(FLUSH_TIMEOUT_S, is_last=False))
        self._assembly.end_sinks()
        for host in self._hosts:
            statuses.extend(self._ask(host, Close(FLUSH_TIMEOUT_S)))
        return statuses

    def _ask(self, ref: ActorRef, question: Any) -> Any:
        try:
            return ref.ask(question)
        except ActorDeadError as error:
            raise self._cause(ref, error) from error

    def _cause(self, ref: ActorRef, error: ActorDeadError) -> BaseException:
        return ref.failure if ref.failure is not None else error

    def _end(self, ref: ActorRef) -> None:
        ref.stop()
        ref.join(FLUSH_TIMEOUT_S)
