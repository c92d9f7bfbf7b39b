"""``walle run --runtime ray`` as a target: stand-ins for the driver and Ray's workers."""

import subprocess
import sys

import msgspec
import pytest

from walle_stream.app.figures.status import HostStatus, RunStatus
from walle_stream.faults import CRASH_POINTS
from walle_stream.testing.chaos import ChaosPlan, PartPlan
from walle_stream.testing.chaos.processes import await_end, look_at
from walle_stream.testing.chaos.ray_cluster import make_cluster_folder
from walle_stream.testing.chaos.ray_target import RayRunning, RayTarget

DRIVER = "raise SystemExit(int(input()))"
WORKER = "import sys; sys.stdin.read()"


def start(code):
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)


class Cluster:
    """Workers 0, 1 and 2 are hosts, of which the last is done, 3 is the cloud side, 4 no one's."""

    def __init__(self):
        self.started = [start(WORKER) for _ in range(5)]
        self.pids = [each.pid for each in self.started]
        self.identities = self.workers()

    def workers(self):
        return [found for pid in self.pids if (found := look_at(pid))]

    def died(self, *numbers):
        """Whether these died, and no other."""
        gone = all(await_end(self.identities[n], 30.0) for n in numbers)
        return gone and len(self.workers()) == len(self.pids) - len(numbers)


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    for each in made.started:
        each.kill()
        each.communicate()


@pytest.fixture
def tell(tmp_path, cluster):
    """Write the status of a driver, and the phases of the hosts."""

    def tell(driver_pid):
        hosts = [
            HostStatus(index=number, pid=cluster.pids[number], step=step)
            for number, step in enumerate(("running", "opening", "done"))
        ]
        status = RunStatus(pipeline="p", runtime="ray", phase="running", pid=driver_pid)
        status.hosts = hosts
        (tmp_path / "status.json").write_bytes(msgspec.json.encode(status))
        for number in range(3):
            (tmp_path / str(cluster.pids[number])).write_bytes(bytes([number + 1]))

    return tell


@pytest.fixture
def run(tmp_path, cluster):
    process = start(DRIVER)
    (tmp_path / "said").write_text("what it said")
    running = RayRunning(process, tmp_path, tmp_path / "said", cluster, tmp_path / "status.json")
    running.pid = process.pid
    running.end_with = lambda code: (process.stdin.write(b"%d\n" % code), process.stdin.flush())
    yield running
    running.close()
    process.stdin.close()


def test_each_role_has_its_processes_and_each_is_killed_once(run, tell, cluster):
    tell(run.pid)
    assert run.kill("host", 3)
    assert cluster.died(1)
    assert run.phase() == CRASH_POINTS[1]
    assert run.kill("host", 3)
    assert cluster.died(0, 1)
    assert run.phase() == CRASH_POINTS[0]
    # the one that is done is missed by nobody
    assert not run.kill("host", 0)
    assert run.kill("worker", 0)
    assert run.kill("worker", 0)
    assert cluster.died(0, 1, 3, 4)
    assert run.phase() == ""
    assert not run.kill("worker", 0)
    assert run.await_end(0.0) is None


def test_the_status_of_an_earlier_run_names_nobody(run, tell):
    assert not run.kill("host", 0)
    tell(run.pid + 1)
    assert not run.kill("host", 0)


def test_a_driver_dies_in_the_phase_of_a_host(run, tell):
    tell(run.pid)
    assert run.kill("driver", 1)
    assert run.await_end(30.0).kind == "killed"
    assert run.phase() == CRASH_POINTS[1]
    assert not run.kill("driver", 1)


def test_a_run_lives_when_a_host_has_begun(run, tell, cluster):
    tell(run.pid)
    run.await_life(30.0)
    assert run.kill("host", 0)
    run.await_life(30.0)
    assert run.kill("host", 0)
    run.end_with(0)
    run.await_life(30.0)  # nobody is left: its end
    assert run.await_end(30.0).kind == "done"
    assert cluster.died(0, 1)


@pytest.mark.parametrize(("is_killed", "kind"), [(True, "gave up"), (False, "failed")])
def test_a_run_may_give_up_when_its_parts_were_killed(run, tell, is_killed, kind):
    tell(run.pid)
    if is_killed:
        assert run.kill("host", 0)
    run.end_with(9)
    assert run.await_end(30.0).kind == kind


def test_the_folder_of_a_cluster_that_was_left_goes(tmp_path):
    target = RayTarget(ChaosPlan(pipeline="ipv", parts=(PartPlan("ray", 1),)), tmp_path)
    left, other = make_cluster_folder(), tmp_path / "other"
    other.mkdir()
    for folder in (left, other):
        (tmp_path / "cluster").symlink_to(folder)
        target.clear()
        assert not (tmp_path / "cluster").is_symlink()
    assert not left.exists()
    assert other.exists()
