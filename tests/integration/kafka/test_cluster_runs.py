"""Hosts on a Ray cluster: placed by the supervisor or by the group, killed, scaled, stopped."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from itertools import batched
from pathlib import Path

import pytest

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.queries.query import features_lines

sys.path.insert(0, str(Path(__file__).parent))
from topics_of_tests import committed_records, fresh_model, shop_pipeline, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

QUIET = {"lateEvents": 0.0, "lostOrderEvents": 0.0, "duplicates": 0.0, "missingExits": 0.0}
SHOP = {"devices": 12, "sessions": 2, "seed": 3, "payloadBytes": 50, **QUIET}
PARTITIONS = 4


@pytest.fixture(scope="module")
def lines():
    timeline = Timeline(SimulatorModel.model_validate(SHOP))
    return [
        line.data.rstrip(b"\n") + b"\n"
        for window in range(timeline.windows)
        for line in timeline.lines(window)
    ]


def as_row(line):
    event = json.loads(line)
    return event["device_id"], line.rstrip(b"\n"), None, event["ingest_time_ms"]


def definition(folder, source, tunnel, **spec):
    folder.mkdir(exist_ok=True)
    state = {"snapshots": {"path": str(folder / "snapshots"), "every": "200ms"}}
    return shop_pipeline(
        folder,
        f"shop-{folder.name.replace('_', '-').lower()}"[:60].rstrip("-"),
        source=source,
        tunnel=tunnel,
        sequence={"pageTimeout": "30m"},
        state=state,
        runtime={"partitions": PARTITIONS, "hostCpus": 0.5},
        **spec,
    )


def walle(*arguments, environ=None):
    command = [sys.executable, "-m", "walle_stream.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ, timeout=180
    )


def by_device(lines):
    found = {}
    for line in lines:
        made = json.loads(line)
        found.setdefault(made["device_id"], []).append(made["feature"])
    return found


def sent(address, topic):
    """Return the features of a topic by device, without what came twice; numbers have no hole."""
    found = {}
    for envelope, value in committed_records(address, topic, PARTITIONS):
        numbers = found.setdefault(envelope.device_id, {})
        assert numbers.setdefault(envelope.sequence_number, json.loads(value)) == json.loads(value)
    for numbers in found.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    return {device: [numbers[n] for n in sorted(numbers)] for device, numbers in found.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    source = {"connector": "events", "path": str(folder / "events.jsonl")}
    file = definition(folder, source, {"connector": "embedded"})
    done = walle("run", file, "--data-dir", folder / "d")
    assert done.returncode == 0, done.stderr
    return by_device(features_lines(folder / "d"))


@pytest.mark.parametrize("kind", ["parts", "topic", "group"])
def test_a_bounded_source_gives_the_features_of_an_embedded_run(
    address, topics, lines, expected, ray_environ, tmp_path, kind
):
    with fresh_model(address, partitions=PARTITIONS) as model:
        tunnel = {"connector": "kafka", "brokers": address, "topic": model.topic}
        if kind == "parts":
            (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
            source = {"connector": "events", "path": str(tmp_path / "events.jsonl")}
            file = definition(tmp_path, source, tunnel)
            cut = walle("partition", file, "--to", tmp_path / "parts")
            assert cut.returncode == 0, cut.stderr
            file = definition(tmp_path, source | {"path": str(tmp_path / "parts")}, tunnel)
        else:
            raw = topics.make(PARTITIONS)
            topics.write(raw, map(as_row, lines))
            source = {"connector": "kafka", "brokers": address, "topic": raw, "stopAtEnd": True}
            source |= {"group": f"{raw}-hosts"} if kind == "group" else {}
            file = definition(tmp_path, source, tunnel)
        where = ("--data-dir", tmp_path / "d", "--json")
        run = ("run", file, "--runtime", "cluster", "--hosts", 3, *where)
        done = walle(*run, environ=ray_environ)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        count = sum(map(len, expected.values()))
        assert (report["stopped_by"], report["features"]) == ("end", count)
        assert sent(address, model.topic) == expected
        # once more there is nothing left, and the cluster has forgotten the first run
        again = walle(*run, environ=ray_environ)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout.splitlines()[-1])["run_events"] == 0


@pytest.mark.parametrize("has_group", [False, True])
def test_kills_of_hosts_and_supervisor_and_other_numbers_of_hosts_change_no_feature(
    address, topics, lines, expected, ray_environ, tmp_path, has_group
):
    raw = topics.make(PARTITIONS)
    source = {"connector": "kafka", "brokers": address, "topic": raw}
    source |= {"group": f"{raw}-hosts", "sessionTimeout": "6s"} if has_group else {}
    rows = [*batched(map(as_row, lines), len(lines) // 5 + 1, strict=False)]
    with fresh_model(address, partitions=PARTITIONS) as model:
        tunnel = {"connector": "kafka", "brokers": address, "topic": model.topic}
        file = definition(tmp_path, source, tunnel)
        name = f"shop-{tmp_path.name.replace('_', '-').lower()}"[:60].rstrip("-")
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(file)]
        command += ["--runtime", "cluster", "--hosts", "2", "--data-dir", str(tmp_path / "d")]
        run = subprocess.Popen(
            [*command, "--json"], env=ray_environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

        def told(events=0, hosts=0):
            """Return the status once that many events are committed and hosts run, else None."""
            assert run.poll() is None, run.stderr.read().decode()
            asked = walle("status", f"ray:///{name}", "--json", environ=ray_environ)
            status = json.loads(asked.stdout) if asked.returncode == 0 else None
            is_there = status and sum(each["events"] for each in status["partitions"]) >= events
            steps = [each["step"] for each in status["hosts"]] if status else []
            return status if is_there and steps.count("running") >= hosts else None

        count = 0

        def write():
            nonlocal count
            topics.write(raw, rows.pop(0))
            count = len(lines) if not rows else count + len(lines) // 5 + 1
            return until(lambda: told(count))

        try:
            until(lambda: told(hosts=2))
            status = write()
            os.kill(status["hosts"][0]["pid"], signal.SIGKILL)
            status = write()
            os.kill(status["pid"], signal.SIGKILL)
            write()
            assert walle("scale", name, "--hosts", 3, environ=ray_environ).returncode == 0
            until(lambda: told(hosts=3))
            write()
            assert walle("scale", name, "--hosts", 1, environ=ray_environ).returncode == 0
            write()
            stopped = walle("scale", name, "--hosts", 0, environ=ray_environ)
            assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
            run.communicate()
        assert run.returncode == 0, err.decode()
        assert json.loads(out.splitlines()[-1])["stopped_by"] == "a scale to 0 hosts"
        assert sent(address, model.topic) == expected
