"""kill -9 of host processes, of the cloud side's and of drivers under --runtime ray.

Not marked ``chaos``: starting Ray takes long, so one Python does.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from walle_stream.app.query import canonical_state, features_lines

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

ROOT = Path(__file__).resolve().parents[2]
HOST_KILLS = 10
DRIVER_KILLS = 2
TIMEOUT_S = 120.0


def wait_for(condition):
    """Wait until a condition holds; a run that hangs is a finding."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "nothing happened"
        time.sleep(0.01)
    return found


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The main job with runs that take a while: there is always something left to kill."""
    folder = tmp_path_factory.mktemp("pipeline")
    shutil.copytree(ROOT / "configs/samples", folder / "samples")
    shutil.copy(ROOT / "configs/ipv.yaml", folder)
    before, head, after = (ROOT / "configs/ipv.py").read_text().partition("def run(ctx, page):\n")
    slow = "    for _ in range(30_000):\n        pass\n"
    (folder / "ipv.py").write_text(before + head + slow + after)
    return folder / "ipv.yaml"


@pytest.fixture(scope="module")
def start(ray_environ, pipeline):
    """Start ``walle run`` in small batches: many commits to hit."""

    def start(data_dir, *arguments):
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(pipeline)]
        for override in ("spec.runtime.partitions=4", "spec.runtime.batchEvents=20"):
            command += ["--set", override]
        command += ["--data-dir", str(data_dir), "--json", *arguments]
        return subprocess.Popen(
            command, env=ray_environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture(scope="module")
def expected(start, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("reference") / "d"
    finish(start(data_dir))
    return outcome(data_dir)


def finish(process):
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1]), errors


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


def status_of(data_dir):
    try:
        return json.loads((data_dir / "status.json").read_bytes())
    except OSError:
        return None


def commits(status, host=None):
    chosen = [p for p in status["partitions"] if host is None or p["host"] == host]
    return sum(partition["commits"] for partition in chosen)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
        os.kill(pid, signal.SIGKILL)


class Killer:
    """Kills hosts of a running cluster, each in turn after it has committed something."""

    def __init__(self, process, data_dir):
        self.process, self.data_dir = process, data_dir
        self.killed = set()
        self.committed = {}

    def kill_next(self, step, *, is_first_enough=False):
        """Kill a host that is at a step; its pid, or None when the run has ended."""

        def victim():
            if self.process.poll() is not None:
                return True
            status = status_of(self.data_dir)
            for host in status["hosts"] if status else ():
                index, pid = host["index"], host["pid"]
                done = commits(status, index)
                has_worked = is_first_enough or done > self.committed.get(index, 0)
                if host["step"] == step and pid and pid not in self.killed and has_worked:
                    self.committed[index] = done
                    return [pid]
            return None

        found = wait_for(victim)
        if found is True:
            return None
        kill(*found)
        self.killed.update(found)
        return found[0]


def test_kills_in_one_running_cluster_change_no_byte(start, expected, tmp_path):
    kills = lives = 0
    while kills < HOST_KILLS:
        lives += 1
        data_dir = tmp_path / f"life-{lives}"
        process = start(data_dir, "--runtime", "ray", "--hosts", "2")
        killer = Killer(process, data_dir)
        while kills + len(killer.killed) < HOST_KILLS and killer.kill_next("running"):
            if len(killer.killed) == HOST_KILLS // 2:
                # one while it opens, and the cloud side
                killer.kill_next("opening", is_first_enough=True)
                kill(status_of(data_dir)["cloud_pid"])
        report, _ = finish(process)
        assert report["stopped_by"] == "end"
        assert outcome(data_dir) == expected
        restarts = sum(host["restarts"] for host in status_of(data_dir)["hosts"])
        # one that had done all its work already is not started again
        assert len(killer.killed) - 2 <= restarts <= len(killer.killed)
        kills += restarts
    print(f"{kills} kills in {lives} lives")


def test_kills_of_drivers_change_no_byte(start, expected, tmp_path):
    data_dir = tmp_path / "d"
    seen = 0
    for _ in range(DRIVER_KILLS):
        process = start(data_dir, "--runtime", "ray", "--hosts", "2")

        def is_going(pid=process.pid, before=seen):
            status = status_of(data_dir)
            return status and status["pid"] == pid and commits(status) > before and status

        status = wait_for(is_going)
        assert status["phase"] == "running"
        seen = commits(status)
        process.kill()
        process.communicate()
    report, _ = finish(start(data_dir, "--runtime", "ray", "--hosts", "3"))
    assert report["stopped_by"] == "end"
    assert outcome(data_dir) == expected
