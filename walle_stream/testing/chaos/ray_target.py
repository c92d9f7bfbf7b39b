"""``walle run --runtime ray`` as a target: a driver and hosts in one cluster.

Roles, all killed at random moments: ``driver`` is the command itself, which is run again on the
same data directory while its old processes may still hold their databases. ``host`` is a process
that has answered the driver. ``worker`` is any other process of Ray for the run, one that is
starting or idle. The driver restarts dead processes, so a run survives any number of kills except
that of the driver.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.app.figures.status import HostStatus, RunStatus
from walle_stream.errors import ActorDeadError, ChaosError
from walle_stream.faults import CRASH_POINTS
from walle_stream.testing.chaos import processes
from walle_stream.testing.chaos.local import LocalRunning, LocalTarget
from walle_stream.testing.chaos.plan import ChaosPlan
from walle_stream.testing.chaos.processes import ProcessId, command_line
from walle_stream.testing.chaos.ray_cluster import CLUSTER_PREFIX, RayCluster, make_cluster_folder
from walle_stream.testing.chaos.targets import Role

_LOOK_S: Final = 0.05
_IDLE: Final = "ray::IDLE"
_LINK: Final = "cluster"


class RayTarget(LocalTarget):
    """A pipeline over Ray. One cluster runs from the first start to ``clear``."""

    batch_events = 200
    """Batch size. A host makes a few commits between kills, so a life needs only some dozen."""

    def __init__(self, plan: ChaosPlan, folder: Path) -> None:
        """Prepare a target.

        Args:
            plan: Plan of the campaign.
            folder: For the phase files and the output of the runs.
        """
        super().__init__(plan, folder)
        self._cluster: RayCluster | None = None

    @property
    def roles(self) -> Sequence[Role]:
        """The driver, hosts and other workers; see the module."""
        return (
            # rare: the driver is always alive while others restart, and its kill costs the most
            Role("driver", ends_run=True, weight=0.1),
            Role("host", ends_run=False),
            Role("worker", ends_run=False, weight=0.1),
        )

    def clear(self) -> None:
        """End the cluster and every process that carries the folder's mark.

        Raises:
            ChaosError: A process does not end.
        """
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        super().clear()
        link = self._folder / _LINK
        if link.is_symlink():
            # left by a campaign that was killed
            if link.readlink().name.startswith(CLUSTER_PREFIX):
                shutil.rmtree(link.readlink(), ignore_errors=True)
            link.unlink()
        shutil.rmtree(self._phases, ignore_errors=True)

    def start(self, data_dir: Path, role: str = "", crash: str = "") -> "RayRunning":  # noqa: ARG002 - no role is armed
        """Start the driver, and the cluster before the first driver; see ``Target.start``.

        Raises:
            ChaosError: The cluster does not start, or has ended.
        """
        if self._cluster is None:
            self._phases.mkdir(exist_ok=True)
            environ = {**self.environ(), "WALLE_PHASE_FILE": str(self._phases / "%p")}
            folder = make_cluster_folder()
            # link it first: a campaign that is resumed after a kill must find the cluster
            (self._folder / _LINK).symlink_to(folder)
            self._cluster = RayCluster(folder, environ, cpus=self._plan.hosts)
        if not self._cluster.is_alive:
            raise ChaosError(f"the Ray cluster has ended by itself: {self._cluster.said}")
        process, said = self.run_walle(data_dir, self._cluster.environ, "--runtime", "ray")
        return RayRunning(process, self._phases, said, self._cluster, data_dir / "status.json")

    @property
    def _phases(self) -> Path:
        return self._folder / "phases"


class RayRunning(LocalRunning):
    """A started ``walle run --runtime ray``. For one thread."""

    gives_up_with = ActorDeadError.exit_code

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        phases: Path,
        said: Path,
        cluster: RayCluster,
        status: Path,
    ) -> None:
        """Take over a driver.

        Args:
            process: The driver, which this object reaps.
            phases: Folder of phase files, by process number.
            said: File of the driver's output.
            cluster: Cluster of the run.
            status: The driver's status file.
        """
        super().__init__(process, phases, said, is_armed=False)
        self._phases = phases
        self._cluster = cluster
        self._status = status
        self._killed: set[ProcessId] = set()
        self._phase = ""

    def await_life(self, timeout_s: float) -> None:
        """Block until a living host has begun to open its partitions.

        Args:
            timeout_s: Longest wait.
        """
        left = int(timeout_s / _LOOK_S)
        while left > 0 and self.await_end(_LOOK_S) is None:
            status = self._look()
            if status is not None and any(map(self._has_begun, status.hosts)):
                return
            left -= 1

    def kill(self, role: str, pick: int) -> bool:
        """Send SIGKILL to the driver or to one of the cluster's processes; see ``Running``."""
        if self._process.poll() is not None:
            return False
        found = self._find()
        if role == "driver":
            # the driver passes no crash points, so report the phase of one of its hosts
            hosts = found["host"]
            self._phase = self._phase_of(hosts[pick % len(hosts)].pid) if hosts else ""
            self._may_be_killed = True
            self._process.kill()
            return True
        if not found[role]:
            return False
        victim = found[role][pick % len(found[role])]
        if not processes.kill(victim):
            return False
        self._killed.add(victim)
        self._phase = self._phase_of(victim.pid)
        self._parts_killed += 1
        return True

    def phase(self) -> str:
        """Return the last crash point of the process that was killed last."""
        return self._phase

    def _find(self) -> Mapping[str, list[ProcessId]]:
        # processes that were not killed, by role
        roles: dict[int, str] = {}
        status = self._look()
        if status is not None:
            # killing a host that has finished would have no effect
            roles = {each.pid: "done" if each.step == "done" else "host" for each in status.hosts}
        found: dict[str, list[ProcessId]] = {"host": [], "worker": [], "done": []}
        for each in self._cluster.workers():
            if each not in self._killed:
                found[roles.get(each.pid, "worker")].append(each)
        # a kill of a starting worker tests more than one of an idle worker
        starting = [each for each in found["worker"] if command_line(each) != _IDLE]
        found["worker"] = starting or found["worker"]
        return found

    def _has_begun(self, host: HostStatus) -> bool:
        if host.step == "done" or not self._phase_of(host.pid):
            return False
        process = processes.look_at(host.pid)
        return process is not None and process not in self._killed

    def _look(self) -> RunStatus | None:
        # reads the file itself: the public function would open databases twenty times a second
        try:
            status = msgspec.json.decode(self._status.read_bytes(), type=RunStatus)
        except OSError:
            return None
        return status if status.pid == self._process.pid else None

    def _phase_of(self, pid: int) -> str:
        try:
            number = (self._phases / str(pid)).read_bytes()[:1]
        except OSError:
            return ""
        return CRASH_POINTS[number[0] - 1] if number > b"\0" else ""
