"""``walle device`` over a real Apache Kafka: where its features go, what comes down, two of one id."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest
import yaml

from tests.integration.kafka.cloud_end import CloudEnd, Receiver, merged_features, merging
from tests.integration.kafka.topics_of_tests import fresh_model
from tests.unit.actors.parts.test_calls import message
from walle_connectors.kafka import CONNECTOR, topic_reader
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.topic_reader import TopicReader
from walle_stream.app.queries.query import run_state
from walle_stream.clock import monotonic_ms
from walle_stream.errors import TopicError

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

ROOT = Path(__file__).parents[3]
DEVICE = "device-0000002"
PARTITIONS = 5
WAIT_MS = 60_000


def until(look):
    deadline_ms, tick = monotonic_ms() + WAIT_MS, Event()
    while not (found := look()):
        assert monotonic_ms() < deadline_ms, "it did not happen in time"
        tick.wait(0.05)
    return found


@pytest.fixture(scope="module")
def shop(walle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    walle("simulate", folder / "all.jsonl", "--set", "devices=4", "--set", "sessions=4")
    lines = (folder / "all.jsonl").read_text().splitlines(keepends=True)
    own = [line for line in lines if json.loads(line)["device_id"] == DEVICE]
    (folder / "own.jsonl").write_text("".join(own))
    return folder


def written(folder, model, **changes):
    documents = list(yaml.safe_load_all((ROOT / "configs/shop.yaml").read_text()))
    documents[0]["spec"] |= {
        "runtime": {"partitions": PARTITIONS},
        "tunnel": {
            "connector": "walle_connectors.kafka:CONNECTOR",
            "brokers": list(model.brokers),
            "topic": model.topic,
            "downTopic": model.down_topic,
            **changes,
        },
    }
    documents[1]["spec"]["script"] = str(ROOT / "configs/shop.py")
    file = folder / f"p{len(list(folder.glob('*.yaml')))}.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


def command(file, data_dir, *arguments):
    return [sys.executable, "-m", "walle_stream.cli", "device", str(file), "--id", DEVICE, "--json",
            "--data", str(data_dir), *map(str, arguments)]  # fmt: skip


def run(file, data_dir, *arguments, code=0, **options):
    done = subprocess.run(
        command(file, data_dir, *arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_MS / 1000,
        check=False,
        **options,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


@contextmanager
def running(file, data_dir, *arguments):
    agent = subprocess.Popen(
        command(file, data_dir, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield agent
    finally:
        agent.kill()
        agent.communicate()


def stop(agent):
    agent.send_signal(signal.SIGTERM)
    out, errors = agent.communicate(timeout=WAIT_MS / 1000)
    assert agent.returncode == 0, errors
    return json.loads(out), errors


def merged(model, folder, enough):
    """Return the statistics and features of a receiver that has merged the whole topic."""
    with merging(model, folder) as step:
        until(lambda: enough(step()))
        stats = step()
    return stats, merged_features(folder)


def partitions_of(model, topic, count):
    with closing(Receiver(model, topic)) as reader:
        found = {}

        def look():
            positions = {p: records[-1].offset + 1 for p, records in found.items()}
            for partition, records in reader.records(positions).items():
                found.setdefault(partition, []).extend(records)
            return sum(map(len, found.values())) >= count

        until(look)
        return {
            partition: {r.key.decode() for r in records} for partition, records in found.items()
        }


def test_features_go_where_the_key_of_the_device_belongs(walle, address, shop, topics, tmp_path):
    raw = topics.make(PARTITIONS)
    walle("replay", shop / "all.jsonl", "--brokers", address, "--topic", raw)
    with fresh_model(address, PARTITIONS) as model:
        report = run(written(tmp_path, model), tmp_path / "d", "--events", shop / "own.jsonl")
        assert (report["outbox_bytes"], report["uplink_frames"]) == (0, report["commits"])
        assert partitions_of(model, model.topic, report["features"]) == {
            report["partition"]: {DEVICE}
        }
        raw_keys = partitions_of(model, raw, report["events"])
        assert DEVICE in raw_keys[report["partition"]]
        _, records = merged(
            model, tmp_path / "t", lambda stats: stats.features == report["features"]
        )
        walle("device", "shop", "--id", DEVICE, "--data", tmp_path / "embedded", "--events",
              shop / "own.jsonl", "--json")  # fmt: skip
        assert records == merged_features(tmp_path / "embedded")


def test_it_takes_its_own_messages_and_passes_over_others(walle, address, shop, tmp_path):
    with fresh_model(address, PARTITIONS) as model:
        file, data_dir = written(tmp_path, model), tmp_path / "d"
        partition = run(file, data_dir, "--events", shop / "own.jsonl")["partition"]
        with closing(CloudEnd(model)) as cloud:
            devices = ("other", DEVICE, "other", DEVICE, "other")
            notes = [message(d, n, "s") for n, d in enumerate(devices)]
            cloud.send_down(*notes, partition=partition)

        with running(file, data_dir, "--follow") as agent:
            until(lambda: run_state(data_dir).counters.messages == 2)
            report, _ = stop(agent)
        assert (report["messages"], report["dropped_messages"]) == (2, 0)


def test_a_tunnel_that_is_down_keeps_the_outbox_and_says_so(address, shop, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with fresh_model(address, PARTITIONS) as model:
        data_dir, events = tmp_path / "d", ("--events", shop / "own.jsonl")
        with running(written(tmp_path, model, brokers=nobody), data_dir, *events) as agent:
            own = len((shop / "own.jsonl").read_text().splitlines())

            def all_read():
                status = subprocess.run(
                    [sys.executable, "-m", "walle_stream.cli", "status", str(data_dir), "--json"],
                    capture_output=True,
                    check=False,
                )
                found = json.loads(status.stdout)["partitions"] if not status.returncode else []
                return sum(each["events"] for each in found) == own

            until(all_read)
            assert agent.poll() is None  # it waits for the tunnel
            report, errors = stop(agent)
        assert report["outbox_bytes"] > 0
        assert f"{report['outbox_bytes']:,} bytes of features wait in the outbox" in errors
        again = run(written(tmp_path, model), data_dir, *events)
        assert (again["outbox_bytes"], again["run_events"]) == (0, 0)
        stats, _ = merged(model, tmp_path / "t", lambda stats: stats.features == report["features"])
        assert (stats.gaps, stats.duplicates_dropped) == (0, 0)


def test_two_agents_of_one_id_and_a_copy_that_is_behind(address, shop, tmp_path):
    lines = (shop / "own.jsonl").read_text().splitlines(keepends=True)
    cut = len(lines) // 3
    with fresh_model(address, PARTITIONS) as model:
        file = written(tmp_path, model)
        first, second, copy = (tmp_path / name for name in ("first", "second", "copy"))

        def give(data_dir, begin, end):
            return run(file, data_dir, input="".join(lines[begin:end]))

        give(first, 0, cut)
        shutil.copytree(first, copy)
        give(first, cut, 2 * cut)
        own = give(first, 2 * cut, len(lines))["features"]
        # of another incarnation: a device of its own, whose numbers begin at 1
        others = give(second, 0, len(lines))["features"]
        stale = give(copy, cut, len(lines))
        assert stale["outbox_bytes"] == 0  # the broker has it, the receiver will not
        stats, records = merged(
            model,
            tmp_path / "t",
            lambda stats: stats.features == own + others and stats.frames_refused > 0,
        )
        assert stats.gaps == 0
        assert [each.sequence_number for each in records[:own]] == [*range(1, own + 1)]
        assert len(records) == own + others


def test_a_topic_with_another_number_of_partitions_is_refused(address, shop, tmp_path):
    with fresh_model(address, PARTITIONS + 1) as model:
        errors = run(
            written(tmp_path, model), tmp_path / "d", "--events", shop / "own.jsonl", code=13
        )
        assert f"has {PARTITIONS + 1} partitions, the pipeline {PARTITIONS}" in errors


@pytest.mark.parametrize("after", [3 * PARTITIONS, 2 * PARTITIONS])
def test_a_device_goes_on_where_its_topics_have_grown(address, shop, tmp_path, after):
    lines = (shop / "own.jsonl").read_text().splitlines(keepends=True)
    half, data_dir = len(lines) // 2, tmp_path / "d"
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with fresh_model(address, PARTITIONS) as model:
        file = written(tmp_path, model)
        first = run(file, data_dir, input="".join(lines[: half // 2]))
        # what comes next is left in the outbox, and a message is not taken
        away = written(tmp_path, model, brokers=nobody)
        with running(away, data_dir) as agent:
            agent.stdin.write("".join(lines[half // 2 : half]))
            agent.stdin.flush()
            until(lambda: run_state(data_dir).counters.events == half)
            report, _ = stop(agent)
        assert report["outbox_bytes"] > 0
        with closing(CloudEnd(model)) as cloud:
            cloud.send_down(message(DEVICE, 1, "s"), partition=first["partition"])
        with admin_client(model) as admin:
            admin.create_partitions({model.topic: after, model.down_topic: after})
        errors = run(file, data_dir, input="", code=13)
        assert f"set spec.runtime.partitions={after}" in errors
        home = CONNECTOR.device_partition(DEVICE, after)
        with closing(CloudEnd(model)) as cloud:
            cloud.send_down(message(DEVICE, 2, "s"), partition=home)
        grown = ("--set", f"spec.runtime.partitions={after}")
        with running(file, data_dir, "--follow", *grown) as agent:
            agent.stdin.write("".join(lines[half:]))
            agent.stdin.flush()
            until(lambda: run_state(data_dir).counters.messages == 2)
            until(lambda: run_state(data_dir).counters.events == len(lines))
            report, _ = stop(agent)
        assert (report["partition"], report["dropped_messages"]) == (home, 0)
        # nothing comes twice in a run that begins there
        again = run(file, data_dir, *grown, input="")
        assert (again["messages"], again["outbox_bytes"], again["run_events"]) == (2, 0, 0)
        wanted = again["features"]
        stats, records = merged(model, tmp_path / "t", lambda stats: stats.features == wanted)
        assert (stats.gaps, stats.duplicates_dropped) == (0, 0)
        assert [each.sequence_number for each in records] == [*range(1, wanted + 1)]


def test_an_agent_that_runs_on_when_its_topics_grow_is_told(address, monkeypatch, driver):
    monkeypatch.setattr(topic_reader, "_METADATA_MS", 500)
    with fresh_model(address, PARTITIONS, driver=driver) as model:
        with closing(TopicReader(model, model.down_topic)) as reader:
            until(lambda: reader.take({0: 0}) or not reader.is_behind(0))
            with admin_client(model) as admin:
                admin.create_partitions({model.down_topic: 2 * PARTITIONS})
            with pytest.raises(TopicError) as found:
                until(lambda: reader.take({0: 0}))
        assert found.value.topic == model.down_topic


def test_keys_are_placed_as_producers_place_them():
    from kafka.partitioner import DefaultPartitioner

    class Cluster:
        def topics(self):
            return {"t"}

        def partitions_for_topic(self, _topic):
            return range(7)

        available_partitions_for_topic = partitions_for_topic

    place = DefaultPartitioner().partition
    for number in range(200):
        key = f"gerät-{number}" * (number % 5 + 1)
        wanted = place("t", key, key.encode(), None, None, Cluster())
        assert CONNECTOR.device_partition(key, 7) == wanted
