"""Hosts as Ray actors over Kafka: the source places partitions, features go to a topic."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.figures.status import read_status
from walle_stream.app.queries.query import features_lines

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import merging
from topics_of_tests import fresh_model, shop_pipeline

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

QUIET = {"lateEvents": 0.0, "lostOrderEvents": 0.0, "duplicates": 0.0, "missingExits": 0.0}
SHOP = {"devices": 12, "sessions": 2, "seed": 3, "payloadBytes": 50, **QUIET}


@pytest.fixture(scope="module")
def raw(topics):
    """A topic of raw events of four partitions."""
    name = topics.make(4)
    timeline = Timeline(SimulatorModel.model_validate(SHOP))
    lines = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    topics.write(name, [row(line.rstrip(b"\n")) for line in lines])
    return name


def row(line):
    event = json.loads(line)
    return event["device_id"], line, None, event["ingest_time_ms"]


def definition(folder, source, tunnel):
    folder.mkdir(exist_ok=True)
    rest = {"sequence": {"pageTimeout": "30m"}, "runtime": {"partitions": 4}}
    return shop_pipeline(folder, "shop-ray-kafka", source=source, tunnel=tunnel, **rest)


def run(file, data_dir, *arguments, environ=None):
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(file), "--json"]
    done = subprocess.run(
        [*command, "--data-dir", str(data_dir), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def by_device(lines):
    found = {}
    for line in lines:
        made = json.loads(line)
        found.setdefault(made["device_id"], []).append(made["feature"])
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded")
    source = {"connector": "simulator", **SHOP}
    run(definition(folder, source, {"connector": "embedded"}), folder / "d")
    return by_device(features_lines(folder / "d"))


@pytest.mark.parametrize("group", ["", "hosts"])
def test_hosts_under_ray_make_the_features_of_an_embedded_run(
    address, raw, expected, ray_environ, tmp_path, group
):
    source = {"connector": "kafka", "brokers": address, "topic": raw, "stopAtEnd": True}
    if group:
        source["group"] = f"{raw}-{group}"
    with fresh_model(address, partitions=4) as model:
        tunnel = {"connector": "kafka", "brokers": address, "topic": model.topic}
        file = definition(tmp_path, source, tunnel)
        ray = ("--runtime", "ray", "--hosts", "2")
        report = run(file, tmp_path / "d", *ray, environ=ray_environ)
        count = sum(map(len, expected.values()))
        assert (report["stopped_by"], report["features"], report["cloud"]) == ("end", count, None)
        assert report["run_events"] == report["events"]
        assert by_device(features_lines(tmp_path / "d")) == expected
        assert [each.number for each in read_status(tmp_path / "d").partitions] == [0, 1, 2, 3]
        # the local runtime goes on where Ray ended: there is nothing left
        again = run(file, tmp_path / "d")
        assert (again["run_events"], again["features"]) == (0, count)
        with merging(model, tmp_path / "table") as step:
            while (stats := step()).features < count:
                pass
            assert (stats.gaps, stats.frames_refused) == (0, 0)
