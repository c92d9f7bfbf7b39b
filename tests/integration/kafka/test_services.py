"""Calls of services over a real broker: each answered, whatever is killed, moved or hangs."""

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from cloud_worker import DEADLINE_S, Cluster, Worker, envelope, send, wait_until

from walle_connectors.kafka.topic_reader import TopicReader
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.app.queries.query import canonical_state
from walle_stream.app.resources import shipped_configs
from walle_stream.testing.kit import run_pipeline
from walle_stream.wire.calls import decode_reply
from walle_stream.wire.message import decode_message

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:unclosed <:ResourceWarning"),
]

PARTITIONS = 4

SERVICES = """
import pathlib, time
def double(call):
    return {"n": 2 * call.question["n"]}
def slow(call):
    pathlib.Path(__file__).with_name("slow").touch()
    time.sleep(call.question["s"])
    return {}
def huge(call):
    return "x" * 10_000_000
def fails(call):
    raise KeyError(call.device_id)
"""

SPEC = """{
  double: {file: cloud.py, function: double},
  slow: {file: cloud.py, function: slow, timeout: 500ms, concurrency: 1},
  huge: {file: cloud.py, function: huge},
  fails: {file: cloud.py, function: fails},
}"""

SCRIPT = """
def run(ctx, page):
    n = ctx.state.get("n", 0) + 1
    ctx.state.put("n", n)
    ctx.call_cloud("double", {"n": n})
    ctx.call_cloud("fails", {})
    ctx.emit({"n": n})

def on_reply(ctx, reply):
    ctx.emit({"reply": reply.call, "value": reply.value, "error": reply.error})
    if reply.service == "double" and reply.value["n"] < 1_000:
        ctx.call_cloud("double", reply.value)
"""


class Exchange:
    """Topics both ways, and what came down."""

    def __init__(self, address, folder):
        self.cluster = Cluster(address)
        self.folder = folder
        self.up = self.cluster.topic("features", PARTITIONS)
        self.down = self.cluster.topic("messages", PARTITIONS)
        (folder / "cloud.py").write_text(SERVICES)
        self.services = yaml.safe_load(SPEC)
        for each in self.services.values():
            each["file"] = str(folder / "cloud.py")
        self.model = KafkaTunnelModel(brokers=address, topic=self.up, down_topic=self.down)
        self.reader = TopicReader(self.model, self.down)

    def worker(self, name="w", *arguments):
        overrides = [
            f"spec.tunnel.downTopic={self.down}",
            f"spec.services={json.dumps(self.services)}",
        ]
        return Worker(
            self.folder, self.cluster, self.up, *arguments, overrides=overrides, name=name
        )

    def call(self, device, number, service, partition, **question):
        made = envelope(device, number, partition, service=service)
        send(self.cluster, self.up, made, json.dumps(question).encode())

    def replies(self):
        """By device and number, what came down: once or more often, and always the same."""
        found = {}
        for records in self.reader.take(dict.fromkeys(range(PARTITIONS), 0)).values():
            for each in records:
                made = decode_message(each.key, each.value, each.headers)
                reply = decode_reply(made.payload)
                at = found.setdefault((made.device_id, reply.number), (reply, []))
                assert at[0] == reply
                at[1].append(each.offset)
        return found

    def pipeline(self, tunnel, source=None):
        folder = self.folder
        documents = list(
            yaml.safe_load_all((shipped_configs() / "template" / "pipeline.yaml").read_text())
        )
        spec = documents[0]["spec"]
        spec["source"]["path"] = str(shipped_configs() / "template" / spec["source"]["path"])
        spec["source"] = source or spec["source"]
        spec |= {"services": self.services, "tunnel": tunnel, "runtime": {"partitions": PARTITIONS}}
        documents[1]["spec"]["script"] = str(folder / "visit.py")
        (folder / "visit.py").write_text(SCRIPT)
        file = folder / f"{tunnel['connector'].partition(':')[0]}.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return file

    def device_pipeline(self, source=None):
        tunnel = {"connector": "kafka", "brokers": list(self.model.brokers)}
        return self.pipeline({**tunnel, "topic": self.up, "downTopic": self.down}, source)

    def close(self):
        self.reader.close()
        self.cluster.close()


@pytest.fixture
def exchange(address, tmp_path):
    made = Exchange(address, tmp_path)
    yield made
    made.close()


def counted(rows):
    """Features as a multiset: when an answer comes is left to chance."""
    return Counter((row["device_id"], json.dumps(row["feature"])) for row in rows)


def run_until_answered(file, data_dir):
    """Run again and again, as a device does: a bounded run waits some seconds for answers."""
    for _ in range(10):
        rows = run_pipeline(file, data_dir)
        if not any("call" in json.loads(line) for line in canonical_state(data_dir)):
            return counted(rows)
    raise AssertionError("calls wait for ever")


def test_what_comes_by_kafka_is_what_an_embedded_run_answers(exchange, tmp_path):
    wanted = counted(run_pipeline(exchange.pipeline({"connector": "embedded"}), tmp_path / "one"))
    assert any('"reply"' in feature for _, feature in wanted)
    with exchange.worker() as worker:
        worker.wait_ready()
        assert run_until_answered(exchange.device_pipeline(), tmp_path / "kafka") == wanted
        health = worker.get("/healthz")[1]
        assert (
            health["services"]["double"]["answered"]
            == health["counts"]["calls"] - (health["services"]["fails"]["failed"])
        )
        assert worker.stop() == 0
        assert "Traceback" not in worker.output()


def test_a_bounded_group_waits_for_its_replies(exchange, tmp_path):
    raw = exchange.cluster.topic("raw", PARTITIONS)
    timeline = Timeline(SimulatorModel(devices=5, sessions=1, payload_bytes=0))
    for line in (line for window in range(timeline.windows) for line in timeline.lines(window)):
        device = json.loads(line.data)["device_id"].encode()
        exchange.cluster.producer.send(raw, line.data, key=device)
    exchange.cluster.flush()
    source = {"connector": "kafka", "brokers": list(exchange.model.brokers), "topic": raw}
    file = exchange.device_pipeline({**source, "group": raw, "stopAtEnd": True})
    with exchange.worker() as worker:
        worker.wait_ready()
        assert any('"reply"' in feature for _, feature in run_until_answered(file, tmp_path / "d"))


def test_every_call_is_answered_once_at_the_device_through_kills(exchange, tmp_path):
    wanted = counted(run_pipeline(exchange.pipeline({"connector": "embedded"}), tmp_path / "whole"))
    file, kills = exchange.device_pipeline(), 0
    with ThreadPoolExecutor(1) as devices:

        def goes_on(made, seen):
            return made.done() or len(exchange.replies()) > seen

        made = devices.submit(run_until_answered, file, tmp_path / "kafka")
        while not made.done() or kills < 3:
            with exchange.worker() as worker:
                worker.wait_ready()
                if kills >= 3:
                    assert made.result(DEADLINE_S) == wanted
                else:
                    # in the middle of the answers, wherever they are
                    wait_until(partial(goes_on, made, len(exchange.replies())), "a reply")
            kills += 1


def test_calls_move_with_their_partition(exchange):
    count, snapshots = 40, exchange.folder / "snapshots"
    options = ("--snapshots", snapshots, "--snapshot-every", "1")
    with exchange.worker("one", *options) as one:
        one.wait_ready()
        for number in range(1, count + 1):
            exchange.call(f"d{number % 8}", number, "double", number % PARTITIONS, n=number)
        with exchange.worker("two", *options) as two:
            two.wait_ready()
            wait_until(lambda: two.get("/healthz")[1]["partitions"], "the move", two)
            for number in range(count + 1, 2 * count + 1):
                exchange.call(f"d{number % 8}", number, "double", number % PARTITIONS, n=number)
            exchange.cluster.flush()
            wait_until(lambda: len(exchange.replies()) == 2 * count, "the replies", two)
            one.kill()
            for number in range(2 * count + 1, 3 * count + 1):
                exchange.call(f"d{number % 8}", number, "double", number % PARTITIONS, n=number)
            exchange.cluster.flush()
            found = wait_until(
                lambda: len(exchange.replies()) == 3 * count and exchange.replies(),
                "the replies of all partitions",
                two,
            )
    for (_, number), (reply, _) in found.items():
        assert json.loads(bytes(reply.value)) == {"n": 2 * number}


def test_a_call_that_was_merged_is_answered_by_the_next_worker(exchange):
    with exchange.worker() as worker:
        worker.wait_ready()
        exchange.services["slow"]["timeout"] = "30s"
    marker = exchange.folder / "slow"
    with exchange.worker() as worker:
        worker.wait_ready()
        exchange.call("d", 1, "slow", 1, s=60)
        exchange.cluster.flush()
        wait_until(marker.exists, "the question", worker)
        worker.kill()
    (exchange.folder / "cloud.py").write_text(SERVICES.replace("time.sleep", "float"))
    with exchange.worker() as worker:
        found = wait_until(exchange.replies, "the reply", worker)
        assert worker.get("/healthz")[1]["counts"]["calls"] == 1
    [(key, (reply, _))] = found.items()
    assert (key, bytes(reply.value), reply.error) == (("d", 1), b"{}", "")


def test_services_that_hang_answer_too_much_or_fail_hold_up_no_other(exchange):
    with exchange.worker() as worker:
        worker.wait_ready()
        for number in range(1, 9):
            exchange.call("d", number, "slow", 0, s=3)
        exchange.call("d", 9, "huge", 0)
        exchange.call("d", 10, "fails", 0)
        exchange.call("d", 11, "nobody", 0)
        exchange.call("d", 12, "double", 0, n=1)
        exchange.cluster.flush()
        found = wait_until(
            lambda: len(exchange.replies()) == 12 and exchange.replies(), "the replies", worker
        )
        offsets = {number: at[0] for (_, number), (_, at) in found.items()}
        assert offsets[12] < offsets[8]
        assert [offsets[number] for number in range(1, 9)] == sorted(
            offsets[number] for number in range(1, 9)
        )
        errors = {number: reply.error for (_, number), (reply, _) in found.items()}
        assert all(errors[number].startswith("TimeoutError: ") for number in range(1, 9))
        assert "hang" in errors[8]
        assert errors[9] == "ValueError: 10000002 bytes, at most 1048576 are allowed"
        assert errors[10] == "KeyError: 'd'"
        assert "there is no service 'nobody'" in errors[11]
        assert errors[12] == ""
        shown = worker.get("/healthz")[1]["services"]
        assert shown["slow"]["timed_out"] == 8
        wait_until(
            lambda: not worker.get("/healthz")[1]["services"]["slow"]["waiting"], "acks", worker
        )
        assert worker.stop() == 0
