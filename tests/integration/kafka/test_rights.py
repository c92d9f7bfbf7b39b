"""A device with the rights that deploy/kafka/README.md gives it, and one with fewer."""

import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from kafka import KafkaAdminClient
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import TopicError
from walle_stream.wire.envelope import (
    DownlinkEnvelope,
    UplinkEnvelope,
    decode_downlink,
    encode_uplink,
)
from walle_stream.wire.frame import FeatureRecord, encode_body

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from topics_of_tests import until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

DESCRIBE, READ, WRITE = ACLOperation.DESCRIBE, ACLOperation.READ, ACLOperation.WRITE


@pytest.fixture
def made(broker, topic):
    """Make a device that may do something, and its tunnel's keys."""

    def make(up, down):
        client = f"phone-{uuid.uuid4().hex[:8]}"
        topics = {topic("up"): up, topic("down"): down}
        rights = [
            ACL(
                f"User:CN={client}",
                "*",
                operation,
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType.TOPIC, name),
            )
            for name, operations in topics.items()
            for operation in operations
        ]
        if rights:
            with closing(KafkaAdminClient(**broker.options())) as admin:
                admin.create_acls(rights)
        files = broker.files(client)
        names = list(topics)
        keys = {"topic": names[0], "downTopic": names[1]}
        device = {
            "brokers": broker.address("mutual"),
            "tls": {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)},
        }
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
