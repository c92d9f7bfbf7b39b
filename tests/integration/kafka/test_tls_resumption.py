"""TLS sessions that go on, against a real broker: who we are it knows from before."""

import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import TopicAuthorizationFailedError

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.source import KafkaSourceModel
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.tls_sessions import shared_sessions
from walle_stream.wire.envelope import DownlinkEnvelope, UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from topics_of_tests import until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


@pytest.fixture
def client():
    return f"device-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def model(broker, topic, client):
    """Of a device that may do what it likes in its own two topics, and nothing elsewhere."""
    topics = [topic("up"), topic("down")]
    admin = KafkaAdminClient(**broker.options())
    try:
        admin.create_acls(
            [
                ACL(
                    f"User:CN={client}",
                    "*",
                    ACLOperation.ALL,
                    ACLPermissionType.ALLOW,
                    ResourcePattern(ResourceType.TOPIC, each),
                )
                for each in topics
            ]
        )
    finally:
        admin.close()
    files = broker.files(client)
    return KafkaTunnelModel.model_validate(
        {
            "brokers": broker.address("mutual"),
            "tls": {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)},
            "topic": topics[0],
            "downTopic": topics[1],
        }
    )


@pytest.fixture
def sessions(model):
    return shared_sessions(model.tls.ca, model.tls.cert, model.tls.key)


def frame(number):
    record = FeatureRecord("d", "t", "1", number, b"{}", b"", number)
    body = encode_body([record], "none")
    return encode_uplink(UplinkEnvelope(0, 1, "ab" * 8, number, body))


def send_up(model, number):
    with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
        tunnel.send([(0, number, frame(number))])
        assert until(lambda: list(tunnel.acks(0))) == [number]


def receive_up(model, _number):
    with closing(CloudEnd(model)) as cloud:
        assert until(lambda: cloud.receiver.receive(0, 1 << 20))


def send_down(model, _number):
    with closing(CloudEnd(model)) as cloud:
        cloud.send_down(DownlinkEnvelope("d", "reply", b"{}"))


def receive_down(model, _number):
    with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
        assert until(lambda: tunnel.downlink.receive(0, 0, 1 << 20))


def read_source(model, _number):
    keys = {"brokers": model.brokers, "topic": model.topic, "tls": model.tls}
    client = TopicClient(KafkaSourceModel.model_validate(keys))
    try:
        assert client.identity.partition_count == 1
    finally:
        client.close()


def test_a_second_client_goes_on_with_the_session_of_the_first(model, sessions):
    for number in (1, 2):
        producer = KafkaProducer(**model.client_options(), acks="all")
        try:
            producer.send(model.topic, b"1", partition=0).get(timeout=60)
        finally:
            producer.close(timeout=5)
        # the first connection of the first client, which asks where the partitions are
        assert sessions.full_count == 1
        assert sessions.resumed_count >= number


def test_the_socket_says_so(model, sessions, monkeypatch):
    from walle_connectors.tls_sessions import _Socket

    reused = []
    do_handshake = _Socket.do_handshake

    def noted(self, block=False):
        do_handshake(self, block)
        reused.append(self.session_reused)

    monkeypatch.setattr(_Socket, "do_handshake", noted)
    for _ in range(2):
        consumer = KafkaConsumer(**model.client_options())
        consumer.partitions_for_topic(model.topic)
        consumer.close()
    assert reused[0] is False
    assert set(reused[1:]) == {True}


def test_every_end_of_the_tunnel_and_the_source_resume(model, sessions):
    for number in (1, 2):
        for use in (send_up, receive_up, send_down, receive_down, read_source):
            before = sessions.resumed_count
            use(model, number)
            assert sessions.resumed_count > before, use.__name__
    assert sessions.full_count == 1


def test_a_resumed_client_is_still_itself(broker, topic, model, sessions):
    other = topic("of-somebody-else")
    send_up(model, 1)
    send_up(model, 2)  # known, and allowed
    producer = KafkaProducer(**model.client_options(), acks="all", max_block_ms=5_000)
    try:
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(other, b"x", partition=0).get(timeout=60)
    finally:
        producer.close(timeout=5)
    assert sessions.full_count == 1


def test_a_broker_that_was_killed_knows_no_session_and_takes_a_whole_handshake(
    broker, model, sessions
):
    send_up(model, 1)
    broker.restart()
    send_up(model, 2)
    assert sessions.full_count >= 2
