"""kill -9 of host processes, of the cloud side's and of drivers under --runtime ray.

Not marked ``chaos``: starting Ray takes long, so one Python does.
"""

import contextlib
import json
import os
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


def wait_for(condition, timeout_s=90.0):
    """Wait until a condition holds; a run that hangs is a finding."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "nothing happened"
        time.sleep(0.01)
    return found


@pytest.fixture(scope="module")
def start(ray_environ):
    """Start ``walle run`` over the sample, in small batches: many commits to hit."""

    def start(data_dir, *arguments):
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(ROOT / "configs/ipv.yaml")]
        for override in (
            "spec.runtime.partitions=4",
            "spec.runtime.batchEvents=10",
        ):
            command += ["--set", override]
        command += ["--data-dir", str(data_dir), "--json", *arguments]
        return subprocess.Popen(
            command, env=ray_environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def finish(process):
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1]), errors


@pytest.fixture(scope="module")
def expected(start, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("reference") / "d"
    finish(start(data_dir))
    return outcome(data_dir)


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


def status_of(data_dir):
    try:
        return json.loads((data_dir / "status.json").read_bytes())
    except OSError:
        return None


def commits(status):
    return sum(partition["commits"] for partition in status["partitions"])


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
        os.kill(pid, signal.SIGKILL)


def kill_hosts(process, data_dir, wanted):
    """Kill one host after the other while the run goes on; returns how many."""
    killed, last = set(), 0
    while len(killed) < wanted:

        def victim():
            if process.poll() is not None:
                return True
            status = status_of(data_dir)
            if not status or commits(status) <= last:
                return None
            pids = [h["pid"] for h in status["hosts"] if h["step"] == "running"]
            fresh = [pid for pid in pids if pid and pid not in killed]
            return (fresh[len(killed) % len(fresh)], commits(status)) if fresh else None

        found = wait_for(victim)
        if found is True:
            break
        pid, last = found
        kill(pid)
        killed.add(pid)
    return len(killed)


def test_ten_kills_of_hosts_change_no_byte(start, expected, tmp_path):
    kills = lives = restarts = 0
    while kills < HOST_KILLS:
        lives += 1
        data_dir = tmp_path / f"life-{lives}"
        process = start(data_dir, "--runtime", "ray", "--hosts", "2")
        kills += kill_hosts(process, data_dir, HOST_KILLS - kills)
        report, errors = finish(process)
        assert report["stopped_by"] == "end"
        restarts += sum(host["restarts"] for host in status_of(data_dir)["hosts"])
        print(lives, kills, restarts, report["wall_s"], errors)
        assert outcome(data_dir) == expected
    assert restarts >= kills - lives  # the last one of a life may have had nothing left to do


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


def test_the_cloud_sides_process_may_die_too(start, expected, tmp_path):
    data_dir = tmp_path / "d"
    process = start(data_dir, "--runtime", "ray", "--hosts", "2")
    status = wait_for(lambda: (s := status_of(data_dir)) and commits(s) and s)
    kill(status["cloud_pid"])
    finish(process)
    assert status_of(data_dir)["cloud_restarts"] == 1
    assert outcome(data_dir) == expected


def test_a_host_may_die_while_it_opens(start, expected, tmp_path):
    data_dir = tmp_path / "d"
    process = start(data_dir, "--runtime", "ray", "--hosts", "2")

    def opening():
        status = status_of(data_dir) or {"hosts": []}
        return [h["pid"] for h in status["hosts"] if h["step"] == "opening" and h["pid"]]

    kill(wait_for(opening)[0])
    finish(process)
    assert sum(host["restarts"] for host in status_of(data_dir)["hosts"]) >= 1
    assert outcome(data_dir) == expected
