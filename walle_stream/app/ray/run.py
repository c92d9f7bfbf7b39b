"""Runtime ``ray``: a process per device host, in Ray actors.

The driver holds the data directory's lock, starts the processes, restarts dead ones, and asks each
for its state. No event and no feature passes through the driver. A disconnected host can do no
harm: RocksDB's lock keeps its successor waiting.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import Any

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.figures.status import HostStatus, RunPhase, write_status
from walle_stream.app.local import OnProgress
from walle_stream.app.options import RunOptions, end_process
from walle_stream.app.ray.actors import POLL_MS, Worker
from walle_stream.app.ray.engine import await_engine, engine_needs, start_engine
from walle_stream.app.ray.host import HostProcess
from walle_stream.app.ray.session import check_cluster, ray_session, versions_here
from walle_stream.app.ray.watching import Watch
from walle_stream.app.report import CloudReport, RunReport
from walle_stream.clock import monotonic_ms, process_cpu_s
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.errors import ClusterError
from walle_stream.store.datadir import DataDir
from walle_stream.vm.counts import VmCounts, VmStatus

_log = logging.getLogger(__name__)

_THREADS = 4
"""Threads of a worker that answer the driver; a host has no other caller."""


class RayRun:
    """One run of a pipeline over Ray, with the methods of ``LocalRun``. Use once."""

    def __init__(self, assembly: Assembly, options: RunOptions) -> None:
        """Prepare the run without opening anything."""
        hosts = min(options.hosts, assembly.partition_count)
        path = options.data_dir.absolute()
        self._assembly = assembly
        self._data_dir = str(options.data_dir)
        # a stuck script ends its host, and the driver starts another one
        self._options = msgspec.structs.replace(
            options, data_dir=path, hosts=hosts, on_stuck=end_process
        )
        self._stop = Flag()
        self._stopped_by = "end"
        self._engine: Any = None
        """Handles of engine actors, for every host that is started; None without engine actors."""
        self._watch = Watch(assembly.name, assembly.task_names, is_placed=assembly.is_placed)
        self._base: dict[int, bytes] | None = None
        self._is_stopping = False
        self._told_ms = 0.0
        self.is_ready = False

    def stop(self, reason: str) -> None:
        """Ask the run to stop; see ``LocalRun.stop``."""
        if not self._stop.is_set():
            self._stopped_by = reason
            self._stop.set()

    def run(
        self, on_progress: OnProgress | None = None, cpu_before_s: float | None = None
    ) -> RunReport:
        """Run to the end of the source, to the limit or to ``stop``; see ``LocalRun.run``."""
        started_ms = monotonic_ms()
        started_cpu_s = process_cpu_s() if cpu_before_s is None else cpu_before_s
        assembly, options = self._assembly, self._options
        check_cluster()  # before the data directory is made
        with ExitStack() as stack:
            directory = assembly.open_directory(stack, options.data_dir)
            # at its full size, before several processes share it
            directory.open_in_hand(options.hosts, ())
            stack.push(partial(self._end_failed, directory))
            self._tell("starting")
            ray = stack.enter_context(ray_session(options.hosts, **engine_needs(assembly)))
            engine = start_engine(ray, stack, assembly, options.hosts)
            self._start_workers(ray, stack)
            if engine is not None:
                await_engine(engine, self._stop.is_set)
                self._engine = engine.handles
            while any(host.step != "done" for host in self._watch.hosts):
                self._turn(ray)
                if on_progress is not None:
                    on_progress(self._watch.progress, self.run_events)
            self._end_of_limit()
            self._tell("ended")
        cpu_s = process_cpu_s() - started_cpu_s
        cpu_s += sum(host.cpu_s for host in self._watch.hosts)
        return RunReport.of(
            assembly,
            self._watch.before,
            self.status(),
            self._stopped_by,
            data_dir=self._data_dir,
            cloud=CloudReport.of(self._watch.cloud) if assembly.has_cloud else None,
            exit_to_commit_ms=self._watch.latencies.report(),
            run_events=self.run_events,
            wall_s=(monotonic_ms() - started_ms) / 1000.0,
            cpu_s=cpu_s,
        )

    def status(self) -> list[PartitionStatus]:
        """Return the latest figures of all partitions."""
        return self._watch.status()

    @property
    def sink_lags(self) -> Mapping[str, int]:
        """Number of features that each sink has yet to take, as hosts last reported."""
        return self._watch.sink_lags

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of service calls, by service, as hosts last reported."""
        return self._watch.service_counts

    def vm_status(self) -> tuple[VmCounts, list[VmStatus]]:
        """Return the counters of the hosts' pools, and their VMs."""
        return self._watch.vm_status()

    def host_status(self) -> list[HostStatus]:
        """Return the latest state of each host, with its unread input."""
        return self._watch.host_status()

    @property
    def task_names(self) -> list[str]:
        """Names of the definition's tasks, for metrics."""
        return self._assembly.task_names

    @property
    def run_events(self) -> int:
        """Events of this run so far, in the processes of all hosts."""
        return self._watch.run_events

    def _start_workers(self, ray: Any, stack: ExitStack) -> None:
        options, here = self._options, versions_here()
        level = logging.getLogger("walle_stream").getEffectiveLevel()
        assembly = ray.put(self._assembly)
        node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # hosts reserve no CPU, as --hosts may exceed their number; Ray restarts nothing, so that
        # our restarts are counted, logged, and wait for the locks
        common = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": node}
        host = ray.remote(HostProcess).options(**common, max_concurrency=_THREADS)
        place = (str(Path.cwd()), level)

        for index in range(options.hosts):
            make = partial(host.remote, assembly, options, index, *place)
            self._watch.hosts.append(Worker(ray, f"host {index}", make, here))
            stack.callback(self._watch.hosts[-1].kill)

    def _turn(self, ray: Any) -> None:
        hosts = self._watch.hosts
        for host in hosts:
            host.ask_again()
        by_ref = {host.ref: host for host in hosts if host.ref is not None}
        if by_ref:
            ready, _ = ray.wait(list(by_ref), num_returns=1, timeout=POLL_MS / 1000.0)
            for ref in ready:
                self._answered(by_ref[ref], by_ref[ref].take())
        elif not self._is_stopping:
            self._stop.wait(POLL_MS / 1000.0 / 4)
        else:
            Flag().wait(POLL_MS / 1000.0 / 4)
        if self._stop.is_set() and not self._is_stopping:
            self._is_stopping = True
            for host in hosts:
                host.tell("stop")
        if monotonic_ms() - self._told_ms >= POLL_MS:
            self._tell("running")

    def _answered(self, host: Worker, method: str) -> None:
        if method == "hello":
            host.step = "opening"
            host.call("open", self._engine)
        elif method == "open":
            self._opened()
        elif method == "begin":
            host.step = "running"
        elif method == "state":
            self._watch.take(host, host.state)

    def _opened(self) -> None:
        if self._base is None:
            if any(host.step != "opened" for host in self._watch.hosts):
                return
            self._base = {n: at for host in self._watch.hosts for n, at in host.opened[0].items()}
            self._watch.begin()
            if not self._assembly.is_placed:
                self._assembly.mark_open()
            self.is_ready = True
        for host in self._watch.hosts:
            if host.step == "opened" and host.ref is None:
                if self._is_stopping:
                    host.tell("stop")
                host.call("begin", self._base, host.opened[0])

    # Status and report

    def _end_of_limit(self) -> None:
        if self._options.limit is not None and self._stopped_by == "end":
            is_ended = any(state.is_ended for state in self._watch.states())
            self._stopped_by = "end" if is_ended else "limit"

    def _end_failed(
        self, directory: DataDir, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        if error is not None:
            self._stopped_by = str(error)
            self._tell("failed")
            if isinstance(error, ClusterError):
                directory.discard_if_bare()

    def _tell(self, phase: RunPhase) -> None:
        self._told_ms = monotonic_ms()
        status = self._watch.told(
            phase, self._stopped_by, runtime="ray", services=self.service_counts
        )
        write_status(self._assembly.status_path, status)
