"""One run over a cluster: it starts, places, watches and restarts hosts.

It runs in the supervisor. No event passes through it, and it stores nothing. After a crash it asks
the hosts, which Ray finds by name, for all that it needs.
"""

import logging
from contextlib import suppress
from threading import Event as Flag
from typing import Any, Final

import msgspec

from walle_stream.app.assembly import Assembly
from walle_stream.app.cluster.assigner import Assigner, Said
from walle_stream.app.cluster.gauges import RayGauges
from walle_stream.app.figures.status import RunPhase, RunStatus
from walle_stream.app.options import RunOptions, end_process
from walle_stream.app.ray.actors import POLL_MS, Worker
from walle_stream.app.ray.host import HostProcess, HostState, Size
from walle_stream.app.ray.session import versions_here
from walle_stream.app.ray.watching import Watch
from walle_stream.app.report import CloudReport, RunReport
from walle_stream.clock import monotonic_ms, process_cpu_s

_log = logging.getLogger(__name__)

NAMESPACE: Final = "walle"
"""Ray namespace of our actors; their names belong to the cluster, not to a client."""

_THREADS: Final = 4
_PAUSE_S: Final = 0.05
_HEARD_MS: Final = 10_000.0  # longer than Ray needs to notice a dead node


class ClusterRun:
    """One run over a cluster. Use once; call ``run`` in one thread, the rest in any."""

    def __init__(self, ray: Any, assembly: Assembly, options: RunOptions) -> None:
        """Find the hosts left by an earlier supervisor, and start the missing ones; never waits."""
        self.watch = Watch(assembly.name, assembly.task_names, is_placed=True)
        self._ray = ray
        self._assembly = assembly
        self._options = msgspec.structs.replace(
            options, is_spread=True, on_stuck=end_process, hosts=1
        )
        self._size = Size(0, min(options.hosts, assembly.partition_count))
        self._assigner = (
            None
            if assembly.is_placed
            else Assigner(assembly.partition_count, assembly.runtime_spec.standbys)
        )
        self._copies: dict[int, frozenset[int]] = {}  # copies that hosts were told to keep warm
        self._finishing: set[Worker] = set()
        self._leaving: set[Worker] = set()
        self._unheard: set[Worker] = set()  # an earlier supervisor's, which may hold partitions
        self._stop = Flag()
        self._stopped_by = "end"
        self._started_ms = monotonic_ms()
        self._gauges = RayGauges()
        self._shipped = ray.put(assembly)
        self._here = versions_here()
        found = self._found()
        for index in range(max((index + 1 for index, _ in found), default=self._size.hosts)):
            lives = [life for at, life in found if at == index]
            host = self._make_worker(index, lives)
            self.watch.hosts.append(host)
            if lives:
                self._unheard.add(host)

    def stop(self, reason: str) -> None:
        """Ask the run to stop: hosts finish the events read, commit, and close."""
        if not self._stop.is_set():
            self._stopped_by = reason
            self._stop.set()

    def scale(self, hosts: int) -> int:
        """Change the number of hosts, ≥ 1; return the number that the run will have."""
        self._size = Size(self._size.changes + 1, min(hosts, self._assembly.partition_count))
        for host in self.watch.hosts:
            host.tell("remember", self._size)
        # includes hosts that left under an earlier supervisor
        self._leaving.update(host for host in self.watch.hosts if host.step == "done")
        return self._size.hosts

    def told(self, phase: RunPhase = "running") -> RunStatus:
        """Return the status of the run, for people."""
        services = self.watch.service_counts
        return self.watch.told(phase, self._stopped_by, runtime="cluster", services=services)

    def run(self) -> RunReport:
        """Run to the end of the source or to ``stop``; blocks.

        Raises:
            WalleError: A host failed for good; all hosts are ended.
        """
        try:
            while not self._is_over:
                self._turn()
        finally:
            for host in self.watch.hosts:
                host.kill()
        statuses = self.watch.status()
        return RunReport.of(
            self._assembly,
            self.watch.before,
            statuses,
            self._stopped_by,
            data_dir=str(self._options.data_dir),
            cloud=CloudReport.of(self.watch.cloud) if self._assembly.has_cloud else None,
            exit_to_commit_ms=self.watch.latencies.report(),
            run_events=self.watch.run_events,
            wall_s=(monotonic_ms() - self._started_ms) / 1000.0,
            cpu_s=process_cpu_s() + sum(host.cpu_s for host in self.watch.hosts),
        )

    @property
    def _is_over(self) -> bool:
        hosts = self.watch.hosts
        if any(host.step != "done" for host in hosts):
            return False
        has_left = self._assigner is not None and self._assigner.has_left
        return self._stop.is_set() or (len(hosts) >= self._size.hosts and not has_left)

    def _name(self, index: int, life: int) -> str:
        return f"{self._assembly.name}/host-{index}.{life}"

    def _found(self) -> list[tuple[int, int]]:
        # living hosts of this pipeline, as (index, life)
        prefix = f"{self._assembly.name}/host-"
        found = []
        for each in self._ray.util.list_named_actors(all_namespaces=True):
            name = each["name"]
            if each["namespace"] == NAMESPACE and name.startswith(prefix):
                index, _, life = name.removeprefix(prefix).partition(".")
                found.append((int(index), int(life)))
        return found

    def _make_worker(self, index: int, lives: list[int]) -> Worker:
        for life in sorted(lives)[:-1]:
            with suppress(ValueError):  # already gone
                self._ray.kill(self._ray.get_actor(self._name(index, life), NAMESPACE))
        life = max(lives, default=-1)

        def find_or_make() -> Any:
            nonlocal lives, life
            if lives:
                lives = []
                with suppress(ValueError):
                    return self._ray.get_actor(self._name(index, life), NAMESPACE)
            life += 1
            return self._make(index, life)

        # a new node may still be starting
        return Worker(self._ray, f"host {index}", find_or_make, self._here, is_patient=True)

    def _make(self, index: int, life: int) -> Any:
        runtime = self._assembly.runtime_spec
        level = logging.getLogger("walle_stream").getEffectiveLevel()
        host = self._ray.remote(HostProcess).options(
            name=self._name(index, life),
            namespace=NAMESPACE,
            lifetime="detached",
            scheduling_strategy="SPREAD",
            num_cpus=runtime.host_cpus,
            memory=runtime.memory_bytes,
            # our own restarts are counted, logged and placed
            max_restarts=0,
            max_concurrency=_THREADS,
        )
        return host.remote(self._shipped, self._options, index, "", level)

    def _turn(self) -> None:
        self._resize()
        hosts = self.watch.hosts
        for host in hosts:
            host.ask_again()
        by_ref = {host.ref: host for host in hosts if host.ref is not None}
        if by_ref:
            ready, _ = self._ray.wait(list(by_ref), num_returns=1, timeout=POLL_MS / 1000.0)
            for ref in ready:
                host = by_ref[ref]
                restarts = host.restarts
                self._answered(host, host.take())
                if host.restarts != restarts:
                    self._forget(host)
        else:
            Flag().wait(_PAUSE_S)
        self._place()
        self._gauges.tell(self.told)
        if self._stop.is_set():
            self._leave(hosts)

    def _answered(self, host: Worker, method: str) -> None:
        if method == "hello":
            host.step = "opening"
            host.call("open")
        elif method == "open":
            host.call("begin", {}, {})
        elif method == "begin":
            host.step = "running"
            host.tell("remember", self._size)
        elif method == "state":
            self._look_at(host, host.state)

    def _look_at(self, host: Worker, state: HostState) -> None:
        self._unheard.discard(host)
        self.watch.take(host, state)
        self._size = max(self._size, state.size)
        if host.step == "done":
            host.drop()  # its node may go, and another host may use its room
        assigner, index = self._assigner, self.watch.hosts.index(host)
        if assigner is None:
            return
        if host.step == "done" and host in self._finishing:
            assigner.done(index)
        elif host.step == "done":
            assigner.forget(index)
        elif host.step == "running":
            assigner.see(index, Said(state.held, state.warm, state.node))

    def _forget(self, host: Worker) -> None:
        self._unheard.discard(host)
        self._finishing.discard(host)
        self._leaving.discard(host)
        if self._assigner is not None:
            index = self.watch.hosts.index(host)
            self._assigner.forget(index)
            self._copies.pop(index, None)

    @property
    def _is_hearing(self) -> bool:
        # a placement before all hosts have reported would take partitions from hosts at work
        return bool(self._unheard) and monotonic_ms() - self._started_ms < _HEARD_MS

    def _place(self) -> None:
        assigner, hosts = self._assigner, self.watch.hosts
        if assigner is None or self._is_hearing:
            return
        for index, host in enumerate(hosts):
            if host.step == "running" and host not in self._finishing and assigner.is_over(index):
                self._finishing.add(host)
                host.tell("finish")
        running = [
            index
            for index, host in enumerate(hosts)
            if host.step == "running" and host not in {*self._finishing, *self._leaving}
        ]
        staying = [index for index in running if index < self._size.hosts]
        going = [index for index in running if index >= self._size.hosts]
        for index, placed in assigner.place(staying, going).items():
            hosts[index].tell("place", placed.generation, placed.numbers)
        for index, numbers in assigner.copies(staying).items():
            if self._copies.get(index, frozenset()) != numbers:
                self._copies[index] = numbers
                hosts[index].tell("keep_warm", numbers)
        self._leave([hosts[index] for index in going if assigner.is_empty(index)])

    def _resize(self) -> None:
        hosts = self.watch.hosts
        if self._stop.is_set() or self._is_hearing:
            return
        while len(hosts) < self._size.hosts:
            hosts.append(self._make_worker(len(hosts), []))
        assigner = self._assigner
        # an earlier supervisor's hosts may have ended while a dead host's partition was left
        is_left = assigner is not None and assigner.has_left
        is_needed = is_left and all(host.step == "done" for host in hosts)
        for host in hosts[: self._size.hosts]:
            if host.step == "done" and (is_needed or host in self._leaving):
                host.restart("the run needs more hosts", is_death=False)
                self._forget(host)
        surplus = hosts[self._size.hosts :]
        if assigner is not None:
            # hosts with partitions leave when others have taken these
            hosts = surplus if is_left else hosts
            surplus = [host for host in hosts if host.step == "starting"]
        self._leave(surplus)

    def _leave(self, hosts: list[Worker]) -> None:
        for host in hosts:
            if host in self._leaving:
                continue
            if host.step == "running":
                self._leaving.add(host)
                host.tell("stop")
            elif host.step == "starting" and host not in self._unheard:
                self._leaving.add(host)
                host.drop()  # nothing is open, and there may never be room for it
