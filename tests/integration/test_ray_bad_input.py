"""A fault of a cluster, or in it, ends in one line; the next run continues."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.figures.status import read_status
from walle_stream.app.queries.query import canonical_state, features_lines
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import ActorDeadError, ClusterError, StoreError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

SETTINGS = ("--set", "spec.source.devices=12", "--set", "spec.runtime.partitions=4")
RAY = ("--runtime", "ray", "--hosts", "2")

# what Ray asks a cluster itself is changed, and changed back at the end of its input
AS_ANOTHER = """
import json, sys, ray
from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY as key
from ray._private.ray_constants import KV_NAMESPACE_CLUSTER as space
from ray.experimental.internal_kv import _internal_kv_get as get, _internal_kv_put as put
ray.init(log_to_driver=False)
before = get(key, namespace=space)
changed = json.loads(before) | json.loads(sys.argv[1])
put(key, json.dumps(changed).encode(), overwrite=True, namespace=space)
print("changed", flush=True)
sys.stdin.read()
put(key, before, overwrite=True, namespace=space)
"""

# in a worker's process only, before anything of ours is imported there
IN_WORKERS = """
import os, sys
if any("default_worker" in each for each in sys.orig_argv):
"""


def refused(done):
    [line] = done.stderr.splitlines()
    return done.returncode, line


def outcome(data_dir):
    return b"\n".join(features_lines(data_dir)), b"\n".join(canonical_state(data_dir))


@pytest.fixture
def shop(walle, ray_environ):
    """Run the shop; under Ray, workers may find a module that changes what they are."""

    def run(data_dir, *arguments, doctor="", check=True, environ=None, settings=SETTINGS):
        environ = {**ray_environ, **(environ or {})}
        if doctor:
            folder = data_dir.with_name("doctor")
            folder.mkdir(exist_ok=True)
            body = "".join(f"    {line}\n" for line in doctor.splitlines())
            (folder / "sitecustomize.py").write_text(IN_WORKERS + body)
            parts = [str(folder), os.environ.get("PYTHONPATH", "")]
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, parts))
        where = ("--data-dir", data_dir, "--json")
        file = shipped_configs() / "shop.yaml"
        command = ("run", file, *settings, *where, *arguments)
        return walle(*command, check=check, environ=environ, timeout=300)

    return run


@pytest.fixture
def expected(shop, tmp_path):
    shop(tmp_path / "local")
    return outcome(tmp_path / "local")


def test_a_cluster_of_other_versions_is_refused_and_the_next_run_is_whole(
    shop, expected, ray_environ, tmp_path
):
    data_dir = tmp_path / "d"
    command = [sys.executable, "-c", AS_ANOTHER, json.dumps({"ray_version": "2.0.1"})]
    with subprocess.Popen(
        command, env=ray_environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "changed\n"
        code, line = refused(shop(data_dir, *RAY, check=False))
        other.stdin.close()
    assert other.returncode == 0
    assert code == ClusterError.exit_code
    assert "RAY_ADDRESS" in line
    assert "Version mismatch: The cluster was started with: Ray: 2.0.1" in line
    assert not data_dir.exists()
    # the same from the workers themselves, whose report is doctored
    doctor = "import platform\nplatform.python_version = lambda: '3.13.99'"
    code, line = refused(shop(data_dir, *RAY, doctor=doctor, check=False))
    assert code == ClusterError.exit_code
    assert "has Python 3.13.99, this process has Python 3.1" in line
    assert line.endswith("start the cluster from the same environment, or unset RAY_ADDRESS")
    assert not data_dir.exists()
    shop(data_dir, *RAY)
    assert outcome(data_dir) == expected
    # a directory with data stays, and tells of it
    code, _ = refused(shop(data_dir, *RAY, doctor=doctor, check=False))
    status = read_status(data_dir)
    assert (code, status.phase, status.runtime) == (ClusterError.exit_code, "failed", "ray")
    assert "has Python 3.13.99" in status.stopped_by
    assert outcome(data_dir) == expected


def test_hosts_that_die_while_they_open_their_partitions_are_started_again(
    shop, expected, ray_environ, tmp_path
):
    data_dir = tmp_path / "d"
    # a journal to recover from: the last process died between two commits
    environ = {"WALLE_CRASH": "commit.after:6"}
    killed = shop(data_dir, "--set", "spec.runtime.batchEvents=50", environ=environ, check=False)
    assert killed.returncode == -9
    deaths = tmp_path / "deaths"
    doctor = f"""
import pathlib
deaths = pathlib.Path({str(deaths)!r})
deaths.mkdir(exist_ok=True)
if len(list(deaths.iterdir())) < 3:
    (deaths / str(os.getpid())).touch()
    os.environ["WALLE_CRASH"] = "recover.before"
"""
    done = shop(data_dir, *RAY, doctor=doctor)
    assert "is restarted from its last commits: its process died" in done.stderr
    assert len(done.stdout.splitlines()) == 1  # Ray itself tells of deaths there
    assert outcome(data_dir) == expected


@pytest.mark.slow
def test_hosts_that_always_die_while_they_open_end_the_run_and_the_next_one_is_whole(
    shop, expected, tmp_path
):
    data_dir = tmp_path / "d"
    doctor = 'os.environ["WALLE_CRASH"] = "recover.before"'
    done = shop(data_dir, *RAY, doctor=doctor, check=False)
    assert done.returncode == ActorDeadError.exit_code
    last = done.stderr.splitlines()[-1]
    assert last.startswith("walle: host ")
    assert "died 13 times without a commit" in last
    shop(data_dir, *RAY)
    assert outcome(data_dir) == expected


@pytest.mark.slow
def test_a_damaged_partition_is_one_line_under_ray_too(shop, expected, tmp_path):
    data_dir = tmp_path / "d"
    shop(data_dir, "--limit", 500)
    current = data_dir / "partitions/03/CURRENT"
    good = current.read_bytes()
    current.write_bytes(b"MANIFEST-999999\n")
    for more in ((), RAY):
        code, line = refused(shop(data_dir, *more, check=False))
        assert code == StoreError.exit_code
        assert "partitions/03" in line
    current.write_bytes(good)
    shop(data_dir)
    assert outcome(data_dir) == expected


@pytest.fixture
def events(tmp_path):
    """A file of the shop's events, and between them devices that cannot be one."""
    timeline = Timeline(SimulatorModel(devices=12, sessions=2))
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    head, name, rest = lines[30].partition(b'"device_id":')
    rest = rest.partition(b",")[2]
    bad = [b'""', b'"' + b"x" * 10_240 + b'"', b'"\xff\xfe"', b'"\\ud800"', b'"\\u0000"', b"5"]
    whole = list(lines)
    for place, device in enumerate([*bad, b"null", b"[]"]):
        whole.insert(100 * place, head + name + device + b"," + rest)
    files = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    for file, each in zip(files, (lines, whole), strict=True):
        file.write_bytes(b"\n".join(each) + b"\n")
    return files


def test_events_of_devices_that_cannot_be_one_are_dead_letters(shop, events, walle, tmp_path):
    good, bad = events
    runs = {"good": (good, ()), "bad": (bad, ()), "ray": (bad, RAY)}
    for name, (file, more) in runs.items():
        source = f"spec.source={{connector: 'walle_connectors.events:CONNECTOR', path: {file}}}"
        report = shop(tmp_path / name, "--set", source, *more, settings=SETTINGS[2:])
        assert json.loads(report.stdout.splitlines()[-1])["dead_letter_rows"] == (
            0 if name == "good" else 8
        )
    assert list(features_lines(tmp_path / "good")) == list(features_lines(tmp_path / "bad"))
    assert outcome(tmp_path / "bad") == outcome(tmp_path / "ray")
    letters = [
        walle("dead-letters", "list", "--data-dir", tmp_path / name, "--json").stdout
        for name in ("bad", "ray")
    ]
    assert letters[0] == letters[1]
    assert "the device id has 10240 bytes" in letters[0]
