"""The broker that all Kafka tests stand on: its listeners, its certificates, its faults."""

import contextlib
import socket
import ssl
import time

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from walle_stream.errors import BrokerError
from walle_stream.testing.broker import round_trip

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

IMPATIENT = {"bootstrap_timeout_ms": 500, "reconnect_backoff_max_ms": 200}


def produce(options, topic, values):
    producer = KafkaProducer(**options, acks="all", delivery_timeout_ms=60_000)
    try:
        sent = [producer.send(topic, value, partition=0) for value in values]
        return [each.get(timeout=60) for each in sent]
    finally:
        producer.close(timeout=5)


def consume(options, topic, count, timeout_s=60):
    """Values of partition 0 from its beginning, at least ``count`` of them."""
    consumer = KafkaConsumer(**options, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        deadline_s = time.monotonic() + timeout_s
        while len(found) < count and time.monotonic() < deadline_s:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", ["plain", "tls", "mutual"])
def test_each_listener_takes_records_and_gives_them_back(broker, topic, listener):
    name = topic()
    if listener == "mutual":
        allow(broker, name, "phone-1")
    options = broker.options(listener, client="phone-1")
    produce(options, name, [b"one", b"two"])
    assert consume(options, name, 2) == [b"one", b"two"]


def allow(broker, topic, client):
    admin = KafkaAdminClient(**broker.options())
    try:
        admin.create_acls(
            [
                ACL(
                    f"User:CN={client}",
                    "*",
                    operation,
                    ACLPermissionType.ALLOW,
                    ResourcePattern(ResourceType.TOPIC, topic),
                )
                for operation in (ACLOperation.READ, ACLOperation.WRITE)
            ]
        )
    finally:
        admin.close()


def test_a_device_without_the_right_to_a_topic_is_refused(broker, topic):
    mine, other = topic("up-1"), topic("up-2")
    allow(broker, mine, "phone-1")
    options = broker.options("mutual", client="phone-1")
    produce(options, mine, [b"one"])
    with pytest.raises(TopicAuthorizationFailedError):
        produce({**options, "max_block_ms": 5_000}, other, [b"two"])


def is_away(options):
    try:
        KafkaAdminClient(**options, **IMPATIENT).close()
    except KafkaError:
        return True
    return False


def shake_hands(broker, listener, ca, client=None):
    """A TLS handshake; the broker says no to a client with the alert behind its end."""
    context = ssl.create_default_context(cafile=ca)
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    host, _, port = broker.address(listener).partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as bare,
        context.wrap_socket(bare, server_hostname=host) as wrapped,
    ):
        wrapped.settimeout(1.0)  # a broker that lets us in waits for us to speak
        with contextlib.suppress(TimeoutError):
            assert wrapped.recv(1) == b""


def test_a_handshake_succeeds_with_the_right_files(broker):
    files = broker.files("phone-1")
    shake_hands(broker, "tls", files.ca)
    shake_hands(broker, "mutual", files.ca, files)


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(broker):
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required|bad.certificate"):
        shake_hands(broker, "mutual", broker.certificates.ca)


def test_a_client_whose_certificate_another_ca_signed_is_refused(broker):
    stranger = broker.certificates.stranger("elsewhere")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.unknown|unknown.ca"):
        shake_hands(broker, "mutual", broker.certificates.ca, stranger)


def test_a_client_whose_certificate_ended_is_refused(broker):
    ended = broker.certificates.expired("old-phone")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate.(unknown|expired)"):
        shake_hands(broker, "mutual", broker.certificates.ca, ended)


def test_a_client_that_trusts_another_ca_refuses_the_broker(broker):
    stranger = broker.certificates.stranger("elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(broker, "tls", stranger.ca)


def test_a_killed_broker_comes_back_with_every_record_that_it_took(broker, topic):
    name = topic()
    values = [b"%d" % number for number in range(200)]
    produce(broker.options(), name, values)
    broker.kill()
    assert not broker.is_running
    assert is_away(broker.options())
    broker.start()
    assert consume(broker.options(), name, len(values)) == values


def test_a_producer_goes_on_over_a_restart(broker, topic):
    name = topic()
    producer = KafkaProducer(
        **broker.options(),
        acks="all",
        enable_idempotence=True,
        delivery_timeout_ms=120_000,
        request_timeout_ms=5_000,
        reconnect_backoff_max_ms=500,
    )
    values = [b"%d" % number for number in range(300)]
    sent = []
    for number, value in enumerate(values):
        if number == 100:
            sent[-1].get(timeout=60)
            broker.restart()
        sent.append(producer.send(name, value, partition=0))
    for each in sent:
        each.get(timeout=120)
    producer.close(timeout=5)
    assert consume(broker.options(), name, len(values)) == values


def test_a_paused_broker_takes_records_again_when_it_is_resumed(broker, topic):
    name = topic()
    producer = KafkaProducer(
        **broker.options(), acks="all", enable_idempotence=True, delivery_timeout_ms=120_000
    )
    producer.send(name, b"before", partition=0).get(timeout=60)
    broker.pause()
    with pytest.raises(BrokerError, match="no record came back"):
        round_trip(broker.options(), timeout_s=0.1)
    late = producer.send(name, b"during", partition=0)
    assert not late.is_done
    broker.resume()
    late.get(timeout=60)
    producer.close(timeout=5)
    assert consume(broker.options(), name, 2) == [b"before", b"during"]


def test_a_topic_that_nobody_made_is_not_made_by_asking(broker):
    producer = KafkaProducer(**broker.options(), max_block_ms=500)
    with pytest.raises(KafkaError):
        producer.send("nobody-made-this", b"x", partition=0).get(timeout=10)
    producer.close(timeout=5)
