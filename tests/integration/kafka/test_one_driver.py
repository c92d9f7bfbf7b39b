"""A process whose YAML names a driver loads that library, and not the other one."""

import json
import os
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest
import yaml

from tests.integration.kafka.cloud_worker import free_port
from tests.integration.kafka.topics_of_tests import until
from walle_connectors.kafka import CONNECTOR

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

LIBRARIES = {"kafka-python": "kafka", "confluent": "confluent_kafka"}
COUNT, DEVICES = 2, 20
# each process leaves the libraries that it imports, however it ends
CUSTOMIZE = """
import os, sys

def tell(event, details):
    if event == "import" and details[0] in ("kafka", "confluent_kafka"):
        with open(os.path.join({folder!r}, str(os.getpid())), "a") as file:
            file.write(details[0] + " ")

sys.addaudithook(tell)
"""
EVENT = {"kind": "click", "page_id": "p", "page_instance": "", "event_time_ms": 1, "id": "click"}
SCRIPT = "def run(ctx, page):\n    ctx.emit({'n': len(page.rows)})\n"


class Program:
    """Runs ``walle`` and returns the libraries of its process."""

    def __init__(self, folder):
        self.folder, self.told = folder, folder / "told"
        self.told.mkdir()
        (folder / "sitecustomize.py").write_text(CUSTOMIZE.format(folder=str(self.told)))
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

    def start(self, *arguments):
        command = [sys.executable, "-m", "walle_stream.cli", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.env, cwd=self.folder, text=True, **pipes)

    def end(self, process):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        return set((self.told / str(process.pid)).read_text().split()), out

    def run(self, *arguments):
        return self.end(self.start(*arguments))


def pipeline(folder, address, driver, topic):
    up, down = topic("up", partitions=COUNT), topic("down", partitions=COUNT)
    keys = {"connector": "kafka", "brokers": [address], "driver": driver}
    source = {**keys, "topic": topic("raw", partitions=COUNT), "group": topic("group")}
    (folder / "task.py").write_text(SCRIPT)
    task = {"version": "1", "script": "task.py", "triggers": [{"sequence": ["click"]}]}
    spec = {
        "source": {**source, "stopAtEnd": True},
        "runtime": {"partitions": COUNT},
        "tunnel": {**keys, "topic": up, "downTopic": down},
        "deadLetters": {**keys, "topic": topic("letters")},
        "sinks": {"merged": {**keys, "topic": topic("merged")}},
        "tasks": [{"task": "pages"}],
    }
    file = folder / "pipeline.yaml"
    documents = [
        {"apiVersion": "walle/v1", "kind": kind, "metadata": {"name": name}, "spec": each}
        for kind, name, each in (("Pipeline", "p", spec), ("Task", "pages", task))
    ]
    file.write_text(yaml.safe_dump_all(documents))
    return file, source


def healthy(port):
    with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
        told = json.load(answer)
    return told["counts"]["features"] == DEVICES and not any(told["sinks"].values())


def test_each_command_loads_the_driver_alone(address, driver, topic, tmp_path):
    file, source = pipeline(tmp_path, address, driver, topic)
    program, only = Program(tmp_path), {LIBRARIES[driver]}
    reach = ["--brokers", address, "--topic", source["topic"], "--driver", driver]
    events = tmp_path / "events.jsonl"
    lines = [{**EVENT, "device_id": f"d{number}"} for number in range(DEVICES)]
    events.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert program.run("topics", file)[0] == only
    assert program.run("replay", events, *reach)[0] == only
    assert program.run("replay", tmp_path / "back.jsonl", *reach, "--record")[0] == only
    back = (tmp_path / "back.jsonl").read_text().splitlines()
    assert sorted(json.loads(each)["device_id"] for each in back) == sorted(
        each["device_id"] for each in lines
    )
    loaded, out = program.run("doctor", file)
    assert loaded == only
    assert "ok    clock" in out
    assert program.run("run", file, "--data-dir", tmp_path / "data")[0] == only
    port, folder = free_port(), tmp_path / "cloud"
    worker = program.start("cloud", file, "--data-dir", folder, "--web-port", port)
    assert "ready" in worker.stdout.readline()
    until(lambda: healthy(port))
    worker.send_signal(signal.SIGTERM)
    assert program.end(worker)[0] == only
    folders = ["--data-dir", tmp_path / "data", "--cloud-data-dir", tmp_path / "cloud"]
    loaded, out = program.run("topics", "grow", file, "--to", 2 * COUNT, *folders)
    assert loaded == only
    assert out.count(f"{2 * COUNT} partitions") == 3  # source, both ways of the tunnel
    more = ["--set", f"spec.runtime.partitions={2 * COUNT}", "--data-dir", tmp_path / "data"]
    assert program.run("run", file, *more)[0] == only


def test_a_device_is_placed_as_kafkas_own_clients_place_it():
    murmur2 = pytest.importorskip("kafka.partitioner.default").murmur2
    for number in range(100):
        device = "d" * (number % 9) + str(number)
        wanted = (murmur2(device.encode()) & 0x7FFFFFFF) % 7
        assert CONNECTOR.device_partition(device, 7) == wanted
