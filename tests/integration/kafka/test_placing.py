"""Where a run's source is no topic, messages by name, answers and look-ups find its devices, too."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cloud_worker import Cluster, Worker
from topics_of_tests import fresh_model, shop_pipeline, told, until

from walle_connectors.kafka import CONNECTOR
from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.errors import StoreError

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

PARTITIONS = 5
SHOP = {"devices": 12, "sessions": 1, "payloadBytes": 0}
SCRIPT = """
def run(ctx, page):
    if not ctx.state.get("asked", False):
        ctx.state.put("asked", True)
        ctx.call_cloud("echo", {"device": ctx.device_id})

def on_reply(ctx, reply):
    ctx.emit({"reply": reply.value})

def on_message(ctx, message):
    ctx.emit({"message": message.value})
"""
ECHO = "def echo(call):\n    return {**call.question, 'of': call.device_id}\n"


@pytest.fixture
def definition(address, tmp_path):
    """Makes a pipeline with its topics: source -> its file, and options of a worker."""
    (tmp_path / "cloud.py").write_text(ECHO)
    services = {"echo": {"file": str(tmp_path / "cloud.py"), "function": "echo"}}

    with fresh_model(address, PARTITIONS) as model:

        def make(source):
            tunnel = {"brokers": list(model.brokers), "downTopic": model.down_topic}
            file = shop_pipeline(
                tmp_path,
                "placed",
                SCRIPT,
                source=source,
                runtime={"partitions": PARTITIONS},
                services=services,
                tunnel={"connector": "kafka", "topic": model.topic, **tunnel},
            )
            overrides = [
                f"spec.tunnel.downTopic={model.down_topic}",
                f"spec.services={json.dumps(services)}",
            ]
            return file, model.topic, overrides

        yield make


def placed_as_before(meta):
    made = json.loads(meta.read_text())
    assert made.pop("placing") > 0
    meta.write_text(json.dumps(made))


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("simulator", ("--hosts", "2")),
        ("events", ("--hosts", "1")),
        pytest.param(
            "events",
            ("--hosts", "2", "--runtime", "ray"),
            marks=pytest.mark.skipif(find_spec("ray") is None, reason="without the extra `ray`"),
        ),
    ],
)
def test_messages_by_name_answers_and_look_ups_find_a_device(
    walle, address, definition, tmp_path, connector, options
):
    timeline = Timeline(SimulatorModel.model_validate(SHOP))
    lines = [line for window in range(timeline.windows) for line in timeline.lines(window)]
    (tmp_path / "e.jsonl").write_bytes(b"".join(line.data + b"\n" for line in lines))
    devices = sorted({line.device_id for line in lines})
    source = SHOP if connector == "simulator" else {"path": str(tmp_path / "e.jsonl")}
    file, topic, overrides = definition({"connector": connector, **source})
    run = ("run", file, "--data-dir", tmp_path / "d", *options)
    (tmp_path / "m.jsonl").write_text(
        "".join(
            json.dumps({"device_id": device, "value": n}) + "\n"
            for n in range(3)
            for device in devices
        )
    )
    cluster = Cluster(address)
    try:
        with Worker(tmp_path, cluster, topic, overrides=overrides) as worker:
            worker.wait_ready()
            done = walle("send", file, "--lines", tmp_path / "m.jsonl")
            assert done.stderr == ""
            walle(*run)
            walle("send", file, devices[0], '"one"')
            walle("send", file, "--all", '"all"')
            walle("send", file, "--where", f"device={devices[1]}", '"where"')

            def all_have_come():
                walle(*run)
                found = told(walle, tmp_path / "d")
                return all(any("reply" in x for x in found[each]) for each in devices) and found

            found = until(all_have_come)
            last = {devices[0]: ["one", "all"], devices[1]: ["all", "where"]}
            for device in devices:
                messages = [each["message"] for each in found[device] if "message" in each]
                assert messages == [0, 1, 2, *last.get(device, ["all"])]
                replies = [each["reply"] for each in found[device] if "reply" in each]
                assert replies == [{"device": device, "of": device}]
                until(lambda device=device: worker.row(device))
            assert "wait for devices" not in walle("status", tmp_path / "d").stdout
            placed_as_before(tmp_path / "d" / "meta.json")
            refused = walle(*run, check=False)
            assert (refused.returncode, refused.stderr.count("\n")) == (StoreError.exit_code, 1)
            assert "has its devices in other partitions" in refused.stderr
    finally:
        cluster.close()


def test_where_a_producer_has_a_rule_of_its_own_only_where_reaches_a_device(
    walle, address, topics, definition, tmp_path
):
    raw, device = topics.make(PARTITIONS), "device-0000001"
    elsewhere = (CONNECTOR.device_partition(device, PARTITIONS) + 1) % PARTITIONS
    lines = Timeline(SimulatorModel.model_validate(SHOP)).lines(0)
    rows = [(device, x.data, elsewhere) for x in lines if x.device_id == device]
    topics.write(raw, rows)
    source = {"connector": "kafka", "brokers": [address], "topic": raw, "stopAtEnd": True}
    file, *_ = definition(source)
    run = ("run", file, "--data-dir", tmp_path / "d")
    walle(*run)
    assert "--where device=" in walle("send", file, device, '"name"').stdout
    walle("send", file, "--where", f"device={device}", '"where"')
    walle(*run)
    messages = [each["message"] for each in told(walle, tmp_path / "d")[device]]
    assert messages == ["where"]
    assert "1 messages wait for devices" in walle("status", tmp_path / "d").stdout
