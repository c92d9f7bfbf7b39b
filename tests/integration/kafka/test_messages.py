"""``walle send`` over a real Apache Kafka: once and in order, whoever is killed."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.integration.kafka.topics_of_tests import fresh_model, shop_pipeline, told, until
from walle_connectors.kafka.downlink import KafkaDownlinkSender
from walle_connectors.kafka.producing import TopicRecord
from walle_stream.app.queries.query import run_state
from walle_stream.errors import StoreError

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

PARTITIONS = 5
DEVICES = 8
SCRIPT = """
def run(ctx, page):
    pass

def on_message(ctx, message):
    count = ctx.state.get("count", 0) + 1
    ctx.state.put("count", count)
    ctx.emit({"id": message.id, "value": message.value, "count": count})
"""


def pipeline(folder, model, source):
    return shop_pipeline(
        folder,
        "told",
        SCRIPT,
        source=source,
        runtime={"partitions": PARTITIONS},
        tunnel={
            "connector": "walle_connectors.kafka:CONNECTOR",
            "brokers": list(model.brokers),
            "topic": model.topic,
            "downTopic": model.down_topic,
        },
    )


@contextmanager
def running(*arguments, **options):
    command = [sys.executable, "-m", "walle_stream.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process):
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.fixture
def raw(walle, address, topics, tmp_path):
    """A topic with the events of some devices; their ids."""
    walle("simulate", tmp_path / "e.jsonl", "--set", f"devices={DEVICES}", "--set", "sessions=2")
    topic = topics.make(PARTITIONS)
    walle("replay", tmp_path / "e.jsonl", "--brokers", address, "--topic", topic)
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    return topic, sorted({json.loads(line)["device_id"] for line in lines})


def taken(data_dir):
    try:
        return run_state(data_dir).counters
    except StoreError:
        return None


def all_taken(data_dir, count):
    counters = taken(data_dir)
    return counters is not None and counters.messages - counters.dropped_messages >= count


def test_messages_are_taken_once_and_in_order_through_kills(walle, address, raw, tmp_path):
    topic, devices = raw
    count = 3_000
    whose = [devices[n % len(devices)] if n % 50 else "nobody" for n in range(count)]
    lines = [json.dumps({"device_id": who, "value": n}) for n, who in enumerate(whose)]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    with fresh_model(address, PARTITIONS) as model:
        source = {"connector": "kafka", "brokers": [address], "topic": topic}
        file, data_dir = pipeline(tmp_path, model, source), tmp_path / "d"
        where = ("run", file, "--data-dir", data_dir)
        with running(*where):
            send = ("send", file, "--name", "one", "--lines")
            # one for all goes to those that are known when it is taken
            until(lambda: taken(data_dir) and taken(data_dir).devices == len(devices))
            with running(*send, "-", stdin=subprocess.PIPE) as sender:
                sender.stdin.write("\n".join([*lines[:1_600], ""]).encode())
                sender.stdin.flush()
                until(lambda: all_taken(data_dir, 100))
                sender.kill()
        for goal in (1_000, 2_000):
            with running(*where), running(*send, tmp_path / "m.jsonl") as sender:
                until(lambda goal=goal: all_taken(data_dir, goal) or sender.poll() is not None)
        walle(*send, tmp_path / "m.jsonl")
        _poison(model)
        walle("send", file, "--all", '{"to": "all"}', "--name", "two")
        walle("send", file, "--where", f"device={devices[0]}", '"where"', "--name", "three")
        with running(*where) as run:
            # all for single devices, and two for all of each partition
            until(lambda: all_taken(data_dir, count + 2 * PARTITIONS))
            stop(run)
        letters = walle("dead-letters", "list", "--data-dir", data_dir, "--json").stdout
        holding = [json.loads(line)["holds"] for line in letters.splitlines()]
        assert holding.count("message") == 1
        found = told(walle, data_dir)
        for device_id in devices:
            own = [n for n, who in enumerate(whose) if who == device_id]
            wanted = [f"one:{n + 1}" for n in own] + ["two:1"]
            wanted += ["three:1"] if device_id == devices[0] else []
            assert [each["id"] for each in found[device_id]] == wanted
            assert [each["count"] for each in found[device_id]] == [*range(1, len(wanted) + 1)]
            assert [each["value"] for each in found[device_id]][: len(own)] == own
        waiting = whose.count("nobody")
        assert f"{waiting} messages wait for devices" in walle("status", data_dir).stdout


@pytest.mark.parametrize("group", [{}, {"group": "devices"}])
def test_a_run_at_its_end_takes_what_was_sent_since(walle, address, raw, tmp_path, group):
    topic, devices = raw
    with fresh_model(address, PARTITIONS) as model:
        source = {"connector": "kafka", "brokers": [address], "topic": topic, "stopAtEnd": True}
        file = pipeline(tmp_path, model, {**source, **group})
        run = ("run", file, "--data-dir", tmp_path / "d")
        walle(*run)
        walle("send", file, "--all", '"late"')
        walle(*run)
    found = told(walle, tmp_path / "d")
    for who in devices:
        assert [each["value"] for each in found[who]] == ["late"]


def _poison(model):
    """Records that are no messages, as a foreign program would write them."""

    class Foreign(KafkaDownlinkSender):
        def _records(self, given):
            return [TopicRecord(b"someone", given, [])]

    sender = Foreign(model, 1 << 20)
    sender.send([(1, 1, b"\x00poison")])
    until(lambda: list(sender.acks(1)))
    sender.close()


def test_an_agent_takes_its_own_before_its_first_event(walle, address, tmp_path):
    with fresh_model(address, PARTITIONS) as model:
        source = {"connector": "kafka", "brokers": [address], "topic": "none"}
        file, data_dir = pipeline(tmp_path, model, source), tmp_path / "d"
        for who in ("other", "phone-1", "other", "phone-1"):
            walle("send", file, who, f'"to {who}"')
        walle("send", file, "--where", "device=phone-*", "--where", "task=shop-ipv", '"to phones"')
        walle("send", file, "--where", "device=tv-*", '"to others"')
        (tmp_path / "e.jsonl").write_text("")
        agent = ("device", file, "--id", "phone-1", "--data-dir", data_dir, "--follow")
        agent += ("--events", tmp_path / "e.jsonl")
        own = 4
        with running(*agent):
            until(lambda: all_taken(data_dir, own))
        with running(*agent) as process:
            walle("send", file, "phone-1", '"last"')
            until(lambda: all_taken(data_dir, own + 1))
            stop(process)
        found = told(walle, data_dir)
        assert [each["value"] for each in found.pop("phone-1")] == [
            "to phone-1", "to phone-1", "to phones", "last",
        ]  # fmt: skip
        assert not found
        assert taken(data_dir).devices == 1


def test_what_cannot_be_sent_is_one_line(walle, address, tmp_path):
    source = {"connector": "kafka", "brokers": [address], "topic": "none"}
    with fresh_model(address, PARTITIONS) as model:
        file = pipeline(tmp_path, model, source)
        other = ("--set", "spec.runtime.partitions=7")
        done = walle("send", file, "a", "1", *other, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (13, 1)
        assert "has 5 partitions, the pipeline 7" in done.stderr
        nobody = ("--set", "spec.tunnel.brokers=127.0.0.1:1")
        done = walle("send", file, "a", "1", *nobody, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (12, 1)
