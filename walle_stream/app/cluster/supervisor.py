"""The actor that supervises a run; Ray restarts it on another node when it dies."""

import os
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

import msgspec

from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.cluster.run import NAMESPACE, ClusterRun
from walle_stream.app.figures.status import RunStatus
from walle_stream.app.options import RunOptions
from walle_stream.app.ray.logs import LogQueue, LogRecords
from walle_stream.app.ray.session import Versions, check_worker, versions_here
from walle_stream.app.report import RunReport
from walle_stream.errors import ClusterError
from walle_stream.vm.counts import VmCounts, VmStatus

_SUFFIX: Final = "/supervisor"
_PART_BYTES: Final = 64 * 1024  # Ray keeps arguments of up to 100 KB


class Observation(msgspec.Struct):
    """State of a run, for observers."""

    told: RunStatus
    statuses: list[PartitionStatus] = []
    vm_counts: VmCounts = msgspec.field(default_factory=VmCounts)
    vms: list[VmStatus] = []
    progress: float = -1.0
    run_events: int = 0
    sink_lags: dict[str, int] = {}
    is_over: bool = False
    logs: LogRecords = []


class Supervisor:
    """Class of the Ray actor. Its calls run in several threads; only ``wait`` blocks."""

    def __init__(self, options: RunOptions, level: int, asker: Versions, *shipped: bytes) -> None:
        """Start the run, or continue that of an earlier supervisor; never waits.

        ``asker`` has the client's versions. If they differ from those here, nothing starts, and
        every method raises the error. ``shipped`` is the assembly in parts; see ``parts_of``.
        """
        import ray  # noqa: PLC0415 - only where Ray runs

        self._logs = LogQueue(level)
        self._begun: ClusterRun | None = None
        self._report: RunReport | None = None
        self._failure: BaseException | None = None
        self._over = Flag()
        try:
            check_worker(f"the supervisor (process {os.getpid()})", asker, versions_here())
        except ClusterError as error:
            self._failure = error
            self._over.set()
            return
        assembly: Assembly = ray.cloudpickle.loads(b"".join(shipped))
        self._begun = ClusterRun(ray, assembly, options)
        Thread(target=self._work, name="walle-supervisor", daemon=True).start()

    @property
    def _run(self) -> ClusterRun:
        if self._begun is None:
            raise self._failure or AssertionError
        return self._begun

    def hello(self) -> None:
        """Return when the run has started.

        Raises:
            ClusterError: The client's versions differ from those here.
        """
        _ = self._run

    def observe(self) -> Observation:
        """Return the state of the run, and the log lines since the last call."""
        watch = self._run.watch
        return Observation(
            self.told(),
            watch.status(),
            *watch.vm_status(),
            watch.progress,
            watch.run_events,
            watch.sink_lags,
            self._over.is_set(),
            self._logs.take(),
        )

    def told(self) -> RunStatus:
        """Return the status of the run, for people."""
        if not self._over.is_set():
            return self._run.told()
        return self._run.told("ended" if self._failure is None else "failed")

    def stop(self, reason: str) -> None:
        """Ask the run to stop; see ``LocalRun.stop``. A finished run is left alone."""
        if not self._over.is_set():
            self._run.stop(reason)

    def scale(self, hosts: int) -> int:
        """Change the number of hosts; return the new number, or 0 if the run is over."""
        return 0 if self._over.is_set() else self._run.scale(hosts)

    def wait(self) -> RunReport:
        """Return the report of the run at its end; blocks until then.

        Raises:
            WalleError: The run failed for good.
        """
        self._over.wait()
        if self._report is None:
            raise self._failure or AssertionError
        return self._report

    def _work(self) -> None:
        try:
            self._report = self._run.run()
        except BaseException as error:  # noqa: BLE001 - the waiting caller handles it
            self._failure = error
        self._over.set()


def parts_of(ray: Any, assembly: Assembly) -> list[bytes]:
    """Return an assembly in parts small enough for Ray to keep with the actor.

    Ray restarts an actor with its arguments. A large argument would lie in the client's memory, and
    be lost with it.
    """
    whole = ray.cloudpickle.dumps(assembly)
    return [whole[at : at + _PART_BYTES] for at in range(0, len(whole), _PART_BYTES)]


def supervisor_name(pipeline: str) -> str:
    """Return the name of a pipeline's supervisor in our Ray namespace."""
    return f"{pipeline}{_SUFFIX}"


def running(ray: Any) -> list[str]:
    """Return the names of the pipelines that have a supervisor."""
    return [
        each["name"].removesuffix(_SUFFIX)
        for each in ray.util.list_named_actors(all_namespaces=True)
        if each["namespace"] == NAMESPACE and each["name"].endswith(_SUFFIX)
    ]


def find_supervisor(ray: Any, pipeline: str) -> Any | None:
    """Return Ray's handle of a pipeline's supervisor, or None without one."""
    try:
        return ray.get_actor(supervisor_name(pipeline), NAMESPACE)
    except ValueError:
        return None
