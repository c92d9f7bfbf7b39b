"""Hosts on a Ray cluster: placed by the supervisor or by the group, killed, scaled, stopped."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import batched
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.dataset import dataset

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


def definition(folder, source, **spec):
    folder.mkdir(exist_ok=True)
    state = {"snapshots": {"path": str(folder / "snapshots"), "every": "200ms"}}
    return shop_pipeline(
        folder,
        f"shop-{folder.name.replace('_', '-').lower()}"[:60].rstrip("-"),
        source=source,
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


@contextmanager
def tunnel_over_kafka(address):
    """Give the parts of a definition that lead features out, and what finds them."""
    with fresh_model(address, partitions=PARTITIONS) as model:
        tunnel = {"connector": "kafka", "brokers": address, "topic": model.topic}
        yield {"tunnel": tunnel}, lambda: sent(address, model.topic)


@contextmanager
def tables_with_a_sink(folder):
    """The same where partitions have their cloud side with them, and a data set gets features."""
    lake = {"connector": "parquet", "path": str(folder / "lake"), "every": "100ms"}
    yield {"tunnel": {"connector": "embedded"}, "sinks": {"lake": lake}}, lambda: read(folder)


def read(folder):
    """Return the features of a data set by device; each is there once."""
    rows = dataset(folder / "lake", partitioning="hive").to_table().to_pylist()
    found = {}
    for row in rows:
        numbers = found.setdefault(row["device_id"], {})
        assert row["sequence_number"] not in numbers
        numbers[row["sequence_number"]] = json.loads(row["feature"])
    return {device: [numbers[n] for n in sorted(numbers)] for device, numbers in found.items()}


@pytest.fixture(params=["kafka", "embedded"])
def way_out(request, address, tmp_path):
    way = tunnel_over_kafka(address) if request.param == "kafka" else tables_with_a_sink(tmp_path)
    with way as (parts, find):
        yield SimpleNamespace(parts=parts, find=find, folder=tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    source = {"connector": "events", "path": str(folder / "events.jsonl")}
    file = definition(folder, source)
    done = walle("run", file, "--data-dir", folder / "d")
    assert done.returncode == 0, done.stderr
    return by_device(features_lines(folder / "d"))


@pytest.mark.parametrize("kind", ["parts", "topic", "group"])
def test_a_bounded_source_gives_the_features_of_an_embedded_run(
    address, topics, lines, expected, ray_environ, kind, way_out
):
    if kind == "parts":
        (way_out.folder / "events.jsonl").write_bytes(b"".join(lines))
        source = {"connector": "events", "path": str(way_out.folder / "events.jsonl")}
        file = definition(way_out.folder, source, **way_out.parts)
        cut = walle("partition", file, "--to", way_out.folder / "parts")
        assert cut.returncode == 0, cut.stderr
        source |= {"path": str(way_out.folder / "parts")}
    else:
        raw = topics.make(PARTITIONS)
        topics.write(raw, map(as_row, lines))
        source = {"connector": "kafka", "brokers": address, "topic": raw, "stopAtEnd": True}
        source |= {"group": f"{raw}-hosts"} if kind == "group" else {}
    file = definition(way_out.folder, source, **way_out.parts)
    where = ("--data-dir", way_out.folder / "d", "--json")
    run = ("run", file, "--runtime", "cluster", "--hosts", 3, *where)
    done = walle(*run, environ=ray_environ)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    count = sum(map(len, expected.values()))
    assert (report["stopped_by"], report["features"]) == ("end", count)
    assert (report["cloud"] or {"features": count})["features"] == count
    assert way_out.find() == expected
    # once more there is nothing left, and the cluster has forgotten the first run
    again = walle(*run, environ=ray_environ)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["run_events"] == 0
    assert way_out.find() == expected


@pytest.mark.parametrize("has_group", [False, True])
def test_kills_of_hosts_and_supervisor_and_other_numbers_of_hosts_change_no_feature(
    address, topics, lines, expected, ray_environ, has_group, way_out
):
    raw = topics.make(PARTITIONS)
    source = {"connector": "kafka", "brokers": address, "topic": raw}
    source |= {"group": f"{raw}-hosts", "sessionTimeout": "6s"} if has_group else {}
    rows = [*batched(map(as_row, lines), len(lines) // 5 + 1, strict=False)]
    file = definition(way_out.folder, source, **way_out.parts)
    name = f"shop-{way_out.folder.name.replace('_', '-').lower()}"[:60].rstrip("-")
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(file)]
    command += ["--runtime", "cluster", "--hosts", "2", "--data-dir", str(way_out.folder / "d")]
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
    assert way_out.find() == expected
