"""The main job, calls of the cloud and bad input under --runtime ray."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import feed_rows, needs_ray, report_of
from walle_stream.app.figures.status import read_status
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import ClusterError
from walle_stream.store.datadir import DataDir

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration

CALLS = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.call_cloud("double", {"n": n})
    ctx.emit({"n": n})

def on_reply(ctx, reply):
    ctx.emit({"reply": reply.call, "value": reply.value})
    if reply.value["n"] < 16:
        ctx.call_cloud("double", {"n": reply.value["n"]})
"""


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    """Rows of the sample, and between them devices that cannot be one."""
    header, lines = feed_rows()
    path = tmp_path_factory.mktemp("feed") / "feed.csv"
    path.write_bytes(b"\n".join([header, *lines]) + b"\n")
    return path


@pytest.fixture
def run(walle, feed):
    def run(data_dir, *arguments, **options):
        overrides = ("--set", f"spec.source.path={feed}", "--set", "spec.runtime.batchEvents=200")
        where = ("--data-dir", data_dir, "--json")
        return walle("run", ROOT / "configs/ipv.yaml", *overrides, *where, *arguments, **options)

    return run


@needs_ray
def test_a_limit_and_the_rest_give_the_bytes_of_the_local_runtime(
    run, walle, ray_environ, tmp_path
):
    local, remote = tmp_path / "local", tmp_path / "remote"
    # in a cluster that is there, then in one of its own, with other hosts
    first = report_of(run(local, "--limit", 1_500))
    part = report_of(
        run(remote, "--limit", 1_500, "--runtime", "ray", "--hosts", 2, environ=ray_environ)
    )
    assert part["stopped_by"] == first["stopped_by"] == "limit"
    assert part["source_rows"] == first["source_rows"] == 1_500
    assert part["run_events"] == first["run_events"]
    assert outcome(remote) == outcome(local)
    whole = report_of(run(local))
    rest = report_of(run(remote, "--runtime", "ray", "--hosts", 3))
    assert rest["stopped_by"] == "end"
    assert rest["dead_letter_rows"] == whole["dead_letter_rows"] >= 3
    assert outcome(remote) == outcome(local)
    assert rest["cloud"] == whole["cloud"]

    status = json.loads(walle("status", remote, "--json").stdout)
    assert [(h["step"], h["restarts"], h["unread"]) for h in status["hosts"]] == [
        ("done", 0, 0)
    ] * 3
    assert status["phase"] == "ended"
    assert by_task(status) == by_task(rest) == by_task(whole)
    assert sum(each["features"] for each in status["partitions"]) == rest["features"]
    assert "host 2: done" in walle("status", remote).stdout


def by_task(shown):
    return [(t["task"], t["runs"], t["failures"], t["features"]) for t in shown["tasks"]]


@needs_ray
def test_calls_of_the_cloud_are_answered(walle, ray_environ, tmp_path):
    folder = tmp_path / "p"
    shutil.copytree(shipped_configs() / "template", folder)
    (folder / "cloud.py").write_text(
        "def double(call):\n    return {'n': 2 * call.question['n']}\n"
    )
    (folder / "visit.py").write_text(CALLS)
    file = folder / "pipeline.yaml"
    services = "\n  services: {double: {file: cloud.py, function: double}}\n  tasks:"
    file.write_text(file.read_text().replace("\n  tasks:", services))
    for name, more in (("local", ()), ("ray", ("--runtime", "ray", "--hosts", 2))):
        done = walle(
            "run", file, "--data-dir", tmp_path / name, "--json", *more, environ=ray_environ
        )
        answered = report_of(done)["replies"]
        assert report_of(done)["calls"] == answered > 0
        counts = {"answered": answered, "failed": 0, "timed_out": 0, "waiting": 0}
        assert read_status(tmp_path / name).services == {"double": counts}
    assert f"started: {answered:,} answered, 0 failed, 0 timed out, 0 waiting" in (
        walle("status", tmp_path / "ray").stdout
    )
    # in which order replies come is chance; how many features they make is not
    local, remote = (list(features_lines(tmp_path / name)) for name in ("local", "ray"))
    assert len(local) == len(remote) > 0


@needs_ray
def test_a_signal_stops_the_run_and_the_next_one_goes_on(run, feed, ray_environ, tmp_path):
    data_dir = tmp_path / "d"
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(ROOT / "configs/ipv.yaml")]
    command += ["--set", f"spec.source.path={feed}", "--set", "spec.runtime.batchEvents=200"]
    command += ["--data-dir", str(data_dir), "--json", "--runtime", "ray", "--hosts", "2"]
    process = subprocess.Popen(
        command, env=ray_environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline_s = time.monotonic() + 60.0
    while not (data_dir / "status.json").exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert json.loads(out.splitlines()[-1])["stopped_by"] == "SIGTERM"
    assert "run the same command to continue" in errors
    assert read_status(data_dir).phase == "ended"
    # what Ray began, the local runtime ends
    run(data_dir)
    run(tmp_path / "local")
    assert outcome(data_dir) == outcome(tmp_path / "local")


SLOW_END = """
import os, signal, threading
from walle_stream.app.ray.session import ray_session
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
with ray_session(1):
    os.kill(os.getpid(), signal.SIGTERM)
    print(told.wait(60), threading.Event().wait(4.0))  # Ray's own handler aborts after 3 s
"""


@needs_ray
def test_an_end_may_take_its_time(ray_environ):
    command = [sys.executable, "-c", SLOW_END]
    done = subprocess.run(command, env=ray_environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


def refused(done):
    [line] = done.stderr.splitlines()
    return done.returncode, line


@needs_ray
def test_a_cluster_that_is_not_there_is_one_line(run, tmp_path):
    environ = {"RAY_ADDRESS": "127.0.0.1:1"}
    code, line = refused(run(tmp_path / "d", "--runtime", "ray", environ=environ, check=False))
    assert code == ClusterError.exit_code
    assert line.startswith("walle: the Ray cluster '127.0.0.1:1' (RAY_ADDRESS) cannot be reached")
    assert not (tmp_path / "d").exists()


@needs_ray
def test_a_client_address_is_refused(run, tmp_path):
    environ = {"RAY_ADDRESS": "ray://127.0.0.1:10001"}
    code, line = refused(run(tmp_path / "d", "--runtime", "ray", environ=environ, check=False))
    assert code == ClusterError.exit_code
    assert "set HOST:PORT or auto" in line


def test_ray_that_is_not_installed_is_one_line(tmp_path):
    code = "import sys; sys.modules['ray'] = None; from walle_stream.cli.__main__ import main; "
    code += "sys.exit(main(['run', 'ipv', '--runtime', 'ray', '--data-dir', sys.argv[1]]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d")],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
    )
    code, line = refused(done)
    assert code == ClusterError.exit_code
    assert "pip install" in line
    assert "[ray]" in line
    assert not (tmp_path / "d").exists()


def test_two_drivers_and_other_partitions_are_refused_before_ray_starts(run, tmp_path):
    opened = DataDir.open(tmp_path / "d", partition_count=16, pipeline="ipv", source={})
    with opened:
        code, line = refused(run(tmp_path / "d", "--runtime", "ray", check=False))
        assert code == 7
        assert "is in use by process" in line
        assert read_status(tmp_path / "d").phase == "starting"
    more = ("--set", "spec.runtime.partitions=4")
    code, line = refused(run(tmp_path / "d", "--runtime", "ray", *more, check=False))
    assert code == 6
    assert "was made with 16 partitions" in line
