"""A topic gets more partitions: devices go on where their records are, nothing is lost or twice."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_worker import Worker, wait_until
from test_source_pipeline import definition, features, walle

from walle_connectors import kafka
from walle_connectors.kafka.growing import Growth
from walle_connectors.kafka.pipeline import load_kafka
from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.growing import growing_state
from walle_stream.errors import SourceError, StoreError, TopicError
from walle_stream.testing.kit import run_pipeline

pytestmark = pytest.mark.integration

BEFORE, AFTER = 2, 6


class Shop:
    """Events of the shop in two halves, and a topic."""

    def __init__(self, folder, address, name):
        self.folder, self.address, self.name = folder, address, name
        timeline = Timeline(SimulatorModel(devices=30, sessions=3, payload_bytes=50))
        windows = range(timeline.windows)
        lines = [line.data for window in windows for line in timeline.lines(window)]
        half = len(lines) // 2
        self.halves = lines[:half], lines[half:]
        self.devices = sorted({json.loads(line)["device_id"] for line in lines})

    def write(self, half):
        """Write a half into the topic."""
        file = self.folder / f"{half}.jsonl"
        file.write_bytes(b"\n".join(self.halves[half]))
        walle(file, "--topic", self.name, "--brokers", self.address)

    def expected(self):
        """Features of a run over a file of what the topic has."""
        folder = self.folder / "file"
        folder.mkdir()
        back = folder / "back.jsonl"
        walle(back, "--record", "--topic", self.name, "--brokers", self.address)
        path = definition(folder, "{connector: events, path: back.jsonl}")
        return features(path, self.folder / "of-file")

    def source(self, **keys):
        """Return the source of a definition."""
        given = {"brokers": f"'{self.address}'", "topic": self.name, **keys}
        rest = ", ".join(f"{key}: {value}" for key, value in given.items())
        return f"{{connector: '{kafka.__name__}:CONNECTOR', {rest}}}"


@pytest.fixture
def shop(address, topics, tmp_path):
    return Shop(tmp_path, address, topics.make(BEFORE))


def grow(file, *options, code=0):
    """Run the command in a process of its own; return what it said."""
    command = [Path(sys.executable).with_name("walle"), "topics", "grow", file, *options]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def run(path, data_dir, partitions, *overrides, limit=None):
    return features(
        path, data_dir, f"spec.runtime.partitions={partitions}", *overrides, limit=limit
    )


@pytest.mark.parametrize("place", ["data directory", "snapshots", "grown by others"])
def test_devices_go_on_in_their_new_partitions(cluster, shop, tmp_path, place):
    options, overrides, after_dir = ["--data-dir", tmp_path / "d"], [], tmp_path / "d"
    keys = {}
    if place == "snapshots":
        keys["group"] = f"{shop.name}-hosts"
        overrides = [f"spec.state.snapshots={{path: {tmp_path / 'shared'}}}"]
        options, after_dir = ["--set", overrides[0]], tmp_path / "elsewhere"
    path = definition(tmp_path, shop.source(**keys))
    two = f"spec.runtime.partitions={BEFORE}"
    options += ["--set", two, "--to", AFTER]
    shop.write(0)
    run(path, tmp_path / "d", BEFORE, *overrides, limit=len(shop.halves[0]) - 1)
    # a record is left: nothing may be changed
    said = grow(path, *options, code=TopicError.exit_code)
    assert re.search(r"\[\d\] has 1 records", said)
    rest = []
    if place == "grown by others":
        rest = [f"spec.source.firstPartitions={BEFORE}"]
        with cluster.admin() as admin:
            admin.create_partitions({shop.name: AFTER})
    run(path, tmp_path / "d", BEFORE, *overrides, *rest, limit=1)
    assert f"set spec.runtime.partitions={AFTER}" in grow(path, *options)
    shop.write(1)
    end = "spec.source.stopAtEnd=true"
    found = run(path, after_dir, AFTER, *overrides, end)
    expected = shop.expected()
    if place == "snapshots":
        # the embedded table is each data directory's: this one has what came behind the growth
        for device, made in expected.items():
            numbers = {number for number, _ in found.get(device, ())}
            assert sorted(found.get(device, ())) == [it for it in made if it[0] in numbers]
        assert sum(map(len, found.values())) > 20
    else:
        assert found == expected
    with pytest.raises((SourceError, StoreError)):
        run(path, tmp_path / "again", BEFORE, *overrides, end)


@pytest.mark.parametrize("place", ["one worker", "snapshots"])
def test_tables_of_the_cloud_side_go_along(cluster, shop, tmp_path, place):
    up, down = (cluster.topic(name, BEFORE) for name in ("up", "down"))
    of_tunnel = f"{{connector: kafka, brokers: '{shop.address}', topic: {up}, downTopic: {down}}}"
    overrides = [f"metadata.name=t-{cluster.run_id}", f"spec.tunnel={of_tunnel}"]
    path = definition(tmp_path, shop.source())
    names, options, shared = ["one"], ["--cloud-data-dir", tmp_path / "one"], ()
    if place == "snapshots":
        names, shared = ["one", "two"], ("--snapshots", tmp_path / "shared")
        options = list(shared)

    def run_all(partitions, *more, limit=None):
        """Run the hosts, then let workers merge everything; return what they show."""
        given = [*overrides, f"spec.runtime.partitions={partitions}", *more]
        run_pipeline(path, tmp_path / "d", given, limit)
        with ExitStack() as stack:
            down_topic = [f"spec.tunnel.downTopic={down}"]
            workers = [
                stack.enter_context(
                    Worker(
                        tmp_path,
                        cluster,
                        up,
                        *shared,
                        overrides=down_topic,
                        name=name,
                    )
                )
                for name in names
            ]

            def shown():
                mine = {}  # by whoever has it
                for worker in workers:
                    health = worker.get("/healthz")[1]
                    mine |= health["partitions"] if health else {}
                if any(each["lag_records"] for each in mine.values()):
                    return None
                found = {device: workers[0].get(f"/features/{device}") for device in shop.devices}
                is_known = all(status in {200, 404} for status, _ in found.values())
                return found if len(mine) == partitions and is_known else None

            found = wait_until(shown, "all to be merged", workers[0])
            assert [worker.stop() for worker in workers] == [0] * len(workers)
        return {device: row for device, (status, row) in found.items() if status == 200}

    half = run_all(BEFORE, limit=(shop.write(0) or len(shop.halves[0])))
    assert len(half) > 10
    overrides.append(f"spec.runtime.partitions={BEFORE}")
    for last_word in (" split", f"{AFTER} partitions"):

        def die(line, last_word=last_word):
            if line.endswith(last_word):
                raise KeyboardInterrupt

        growth = Growth(load_kafka(path, overrides), AFTER)
        paths = (
            [tmp_path / "one", None] if place == "one worker" else [None, str(tmp_path / "shared")]
        )
        with pytest.raises(KeyboardInterrupt):
            growth.run(growing_state, tmp_path / "d", *paths, die)
    options = [*options, "--to", AFTER, "--data-dir", tmp_path / "d"]
    options += [part for each in overrides for part in ("--set", each)]
    assert "set spec.runtime.partitions" in grow(path, *options)
    assert "grown already" in grow(path, *options)
    overrides.pop()
    shop.write(1)
    found = run_all(AFTER, "spec.source.stopAtEnd=true")
    expected = shop.expected()
    assert found.keys() == expected.keys()
    for device, row in found.items():
        [of_task] = row["tasks"].values()
        made = [(each["sequence_number"], each["feature"]) for each in reversed(of_task)]
        assert (made, row["gaps"]) == (expected[device], 0)
