"""A device with the rights that deploy/kafka/README.md gives it, and one with fewer."""

import json
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from kafka import KafkaAdminClient
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import SinkError, TopicError
from walle_stream.testing.sink_suite import merged_features
from walle_stream.wire.envelope import (
    DownlinkEnvelope,
    UplinkEnvelope,
    decode_downlink,
    encode_downlink,
    encode_uplink,
)
from walle_stream.wire.frame import FeatureRecord, encode_body

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from cloud_worker import Worker, envelope, send, wait_until
from topics_of_tests import shop_pipeline, until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

DESCRIBE, READ, WRITE = ACLOperation.DESCRIBE, ACLOperation.READ, ACLOperation.WRITE
ALTER = ACLOperation.ALTER
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION = ResourceType.TRANSACTIONAL_ID


@pytest.fixture
def client(broker, driver):
    """Make a client that may do something; return how it connects."""

    def make(*rights):
        """Each right is of a kind, a name (``NAME*`` for what begins so), and operations."""
        name = f"phone-{uuid.uuid4().hex[:8]}"
        acls = [
            ACL(
                f"User:CN={name}",
                "*",
                operation,
                ACLPermissionType.ALLOW,
                ResourcePattern(
                    kind,
                    of.rstrip("*"),
                    ACLResourcePatternType.PREFIXED
                    if of.endswith("*")
                    else ACLResourcePatternType.LITERAL,
                ),
            )
            for kind, of, *operations in rights
            for operation in operations
        ]
        if acls:
            with closing(KafkaAdminClient(**broker.options())) as admin:
                admin.create_acls(acls)
        files = broker.files(name)
        return {
            "brokers": broker.address("mutual"),
            "tls": {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)},
            "driver": driver,
        }

    return make


@pytest.fixture
def made(broker, topic, client):
    """Make a device that may do something, and its tunnel's keys."""

    def make(up, down):
        names = topic("up"), topic("down")
        keys = {"topic": names[0], "downTopic": names[1]}
        device = client((TOPIC, names[0], *up), (TOPIC, names[1], *down))
        return (
            KafkaTunnelModel.model_validate({**device, **keys}),
            KafkaTunnelModel.model_validate({"brokers": broker.address(), **keys}),
        )

    return make


def frame(number):
    record = FeatureRecord("d", "t", "1", number, b"{}", b"", number)
    body = encode_body([record], "none")
    return encode_uplink(UplinkEnvelope(0, 1, "ab" * 8, number, body))


def test_a_device_with_its_documented_rights_sends_and_receives(made):
    device, cloud_side = made([WRITE, DESCRIBE], [READ, DESCRIBE])
    with (
        closing(CONNECTOR.open_device(device, 1 << 20)) as tunnel,
        closing(CloudEnd(cloud_side)) as cloud,
    ):
        tunnel.send([(0, 1, frame(1))])
        assert list(until(lambda: tunnel.acks(0))) == [1]
        cloud.send_down(DownlinkEnvelope("d", "greeting", b'"hello"'))
        [(_, message)] = until(lambda: tunnel.downlink.receive(0, 0, 1 << 20))
        assert decode_downlink(message).payload == b'"hello"'


def test_a_device_without_rights_is_told_so_at_its_start(made):
    device, _ = made([], [])
    with pytest.raises(TopicError, match=r"access rights|does not exist"):
        CONNECTOR.open_device(device, 1 << 20)


@pytest.mark.parametrize("lacks", [None, TRANSACTION, GROUP])
def test_a_sink_writes_with_its_documented_rights(client, topic, lacks):
    name, identity = topic("sink"), f"walle-shop-{uuid.uuid4().hex[:8]}"
    rights = [
        (TOPIC, name, READ, WRITE, DESCRIBE),
        (GROUP, f"{identity}-*", READ),
        (TRANSACTION, f"{identity}-*", WRITE),
    ]
    keys = client(*(each for each in rights if each[0] is not lacks))
    features = merged_features(3)
    with closing(CONNECTOR.open_sink(KafkaSinkModel(topic=name, **keys), identity)) as sink:
        if lacks is None:
            assert sink.write("partition-0000", iter(features)).place > features[-1].number
            return
        with pytest.raises(SinkError):
            sink.write("partition-0000", iter(features))


def test_messages_are_sent_with_the_documented_rights(client, topic):
    name = topic("down")
    keys = client((TOPIC, name, WRITE, DESCRIBE))
    model = KafkaTunnelModel.model_validate({**keys, "topic": f"{name}-up", "downTopic": name})
    with closing(CONNECTOR.open_sender(model, 1 << 20, 1)) as sender:
        sender.send([(0, 1, encode_downlink(DownlinkEnvelope("d", "message", b"{}", "me", 1)))])
        assert list(until(lambda: sender.acks(0))) == [1]


def test_a_worker_merges_and_answers_with_its_documented_rights(client, cluster, tmp_path):
    up, down = cluster.topic("up"), cluster.topic("down")
    group = f"walle-cloud-t-{cluster.run_id}"
    keys = client((TOPIC, up, READ, DESCRIBE), (GROUP, group, READ), (TOPIC, down, WRITE, DESCRIBE))
    (tmp_path / "c.py").write_text("def echo(call):\n    return call.question\n")
    overrides = [f"spec.tunnel.{name}={json.dumps(value)}" for name, value in keys.items()]
    overrides.append(f"spec.tunnel.downTopic={down}")
    overrides.append(f"spec.services={{echo: {{file: '{tmp_path / 'c.py'}', function: echo}}}}")
    send(cluster, up, envelope("d", 1, 0), b'{"n":1}')
    send(cluster, up, envelope("d", 1, 0, service="echo"), b'{"n":7}')
    cluster.producer.flush()
    with Worker(tmp_path, cluster, up, overrides=overrides) as worker:
        worker.wait_ready()
        wait_until(lambda: worker.row("d"), "the feature", worker)

        def is_answered():
            services = (worker.get("/healthz")[1] or {}).get("services") or {}
            return services.get("echo", {}).get("answered") == 1

        wait_until(is_answered, "the answer", worker)
        assert worker.stop() == 0


def test_hosts_of_a_group_read_and_grow_with_their_documented_rights(
    client, topics, address, walle, tmp_path
):
    name = topics.make(2)
    file = tmp_path / "e.jsonl"
    walle("simulate", file, "--set", "devices=3", "--set", "sessions=1")
    walle("replay", file, "--topic", name, "--brokers", address)
    hosts = (TOPIC, name, READ, DESCRIBE), (GROUP, f"{name}-hosts", READ)
    source = {"connector": "kafka", "topic": name, "group": f"{name}-hosts", "stopAtEnd": True}
    how = ("--data-dir", tmp_path / "d")

    def pipeline(*rights):
        keys = {**source, **client(*rights)}
        return shop_pipeline(tmp_path, "p", source=keys, runtime={"partitions": 2})

    walle("run", pipeline(*hosts), *how)
    refused = walle("topics", "grow", pipeline(*hosts), "--to", "4", *how, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (TopicError.exit_code, 1)
    walle("topics", "grow", pipeline(*hosts, (TOPIC, name, ALTER)), "--to", "4", *how)
