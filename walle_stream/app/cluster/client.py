"""Client of ``walle run`` for the runtime ``cluster``: it starts, watches and stops a run.

The death of a client changes nothing: the supervisor is an actor of its own.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from threading import Event as Flag
from typing import Any, Final

from walle_stream.actors.engine.ray_errors import last_line
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.cluster.run import NAMESPACE
from walle_stream.app.cluster.supervisor import (
    Observation,
    Supervisor,
    find_supervisor,
    parts_of,
    supervisor_name,
)
from walle_stream.app.figures.status import HostStatus, RunStatus
from walle_stream.app.local import OnProgress
from walle_stream.app.options import RunOptions
from walle_stream.app.ray.actors import START_TIMEOUT_MS
from walle_stream.app.ray.logs import log_again
from walle_stream.app.ray.session import check_cluster, ray_session, versions_here
from walle_stream.app.report import RunReport
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.errors import ClusterError, SourceError, StoreError, StoreLockedError, WalleError
from walle_stream.vm.counts import VmCounts, VmStatus

_log = logging.getLogger(__name__)

_HEAD: Final = "node:__internal_head__"  # a resource that Ray gives to the head node
_SCHEME: Final = "://"
_LOOK_S: Final = 0.3
_THREADS: Final = 16


class ClusterClient:
    """One run of a pipeline over a cluster, with the methods of ``LocalRun``. Use once."""

    def __init__(self, assembly: Assembly, options: RunOptions) -> None:
        """Prepare the run without starting anything."""
        self._assembly, self._options = assembly, options
        self._stop = Flag()
        self._reason = ""
        self._seen = Observation(
            RunStatus(pipeline=assembly.name, runtime="cluster", phase="starting", pid=0)
        )
        self.is_ready = False

    def stop(self, reason: str) -> None:
        """Ask the run to stop; see ``LocalRun.stop``."""
        if not self._stop.is_set():
            self._reason = reason
            self._stop.set()

    def run(
        self,
        on_progress: OnProgress | None = None,
        cpu_before_s: float | None = None,  # noqa: ARG002 - supervisor and hosts count it
    ) -> RunReport:
        """Run to the end of the source or to ``stop``; see ``LocalRun.run``.

        Raises:
            ClusterError: There is no cluster, or its versions differ from those of this process.
            StoreLockedError: The cluster runs this pipeline already.
            WalleError: The definition cannot run on a cluster, or a host failed for good.
        """
        check_spread(self._assembly, self._options)
        check_cluster(is_joined=True)
        with ExitStack() as stack:
            ray = stack.enter_context(ray_session(0))
            supervisor = self._start(ray, stack)
            pending = supervisor.wait.remote()
            is_told = False
            while not ray.wait([pending], timeout=_LOOK_S)[0]:
                if self._stop.is_set() and not is_told:
                    is_told = True
                    supervisor.stop.remote(self._reason)
                self._look(ray, supervisor)
                if on_progress is not None:
                    on_progress(self._seen.progress, self._seen.run_events)
            self._look(ray, supervisor)
            report: RunReport = _answer(ray, pending)
            return report

    # Status, as last reported by the supervisor

    def status(self) -> list[PartitionStatus]:
        """Return the figures of all partitions."""
        return self._seen.statuses

    def vm_status(self) -> tuple[VmCounts, list[VmStatus]]:
        """Return the counters of the hosts' pools, and their VMs."""
        return self._seen.vm_counts, self._seen.vms

    def host_status(self) -> list[HostStatus]:
        """Return the state of each host."""
        return self._seen.told.hosts

    @property
    def task_names(self) -> list[str]:
        """Names of the definition's tasks, for metrics."""
        return self._assembly.task_names

    @property
    def sink_lags(self) -> Mapping[str, int]:
        """Number of features that each sink has yet to take."""
        return self._seen.sink_lags

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of service calls, by service."""
        return self._seen.told.services

    def _start(self, ray: Any, stack: ExitStack) -> Any:
        name = self._assembly.name
        former = find_supervisor(ray, name)
        if former is not None:
            if not _answer(ray, former.observe.remote()).is_over:
                raise _runs_already(name)
            ray.kill(former)
        supervisor_actor = ray.remote(Supervisor).options(
            name=supervisor_name(name),
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            scheduling_strategy=_on_head(ray),
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_THREADS,
        )
        level = logging.getLogger("walle_stream").getEffectiveLevel()
        shipped = parts_of(ray, self._assembly)
        try:
            supervisor = supervisor_actor.remote(self._options, level, versions_here(), *shipped)
        except ValueError as error:  # Ray has an actor with this name
            raise _runs_already(name) from error
        stack.callback(ray.kill, supervisor)
        _answer(ray, supervisor.hello.remote(), START_TIMEOUT_MS / 1000.0)
        self.is_ready = True
        return supervisor

    def _look(self, ray: Any, supervisor: Any) -> None:
        asked = supervisor.observe.remote()
        # no answer while Ray restarts the supervisor
        if ray.wait([asked], timeout=2 * _LOOK_S)[0]:
            self._seen = _answer(ray, asked)
            log_again(self._seen.logs, "cluster")


def check_spread(assembly: Assembly, options: RunOptions) -> None:
    """Refuse a run whose hosts cannot run on any node; warn if state has a single copy.

    Raises:
        SourceError: The hosts cannot read the source separately, or ``--limit`` is set.
        StoreError: State or features would stay on one node.
    """
    if options.limit is not None:
        raise SourceError("--limit works on one node only: leave it out, or use --runtime ray")
    if assembly.snapshots is None:
        raise StoreError(
            "on a cluster, state moves to another node by snapshots: set spec.state.snapshots, "
            "or use --runtime ray"
        )
    assembly.spread()
    place = assembly.snapshots.place
    if _SCHEME not in place or place.startswith(f"file{_SCHEME}"):
        _log.warning(
            "%s has the only copy of state: make sure that its file system keeps several copies, "
            "and that every node can reach it",
            place,
        )


def _runs_already(name: str) -> StoreLockedError:
    return StoreLockedError(
        f"pipeline {name!r} already runs on this cluster: wait for its end, or stop it with "
        f"`walle scale {name} --hosts 0`"
    )


def _on_head(ray: Any) -> Any:
    # the loss of the head ends the cluster anyway; after the loss of another node no time is lost
    # waiting for Ray to restart the supervisor
    heads = [each["NodeID"] for each in ray.nodes() if _HEAD in each["Resources"]]
    if not heads:
        return None
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(heads[0], soft=True)


def _answer(ray: Any, ref: Any, timeout_s: float | None = None) -> Any:
    try:
        return ray.get(ref, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, WalleError) else error) from None
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"the Ray cluster lost the supervisor ({last_line(error)}): start the cluster again, "
            "then run the same command"
        ) from error
