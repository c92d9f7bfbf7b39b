"""Faults between a device and a real Apache Kafka lose nothing."""

import json
import logging
import socket
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread

import pytest
from msgspec import Raw

from kafka import KafkaProducer, TopicPartition
from tests.unit.actors.parts.test_calls import Rows, message, named, taking
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.topics import create_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import TopicError
from walle_stream.wire.calls import REPLY_KIND, CloudReply, decode_reply, encode_reply
from walle_stream.wire.envelope import (
    DownlinkEnvelope,
    UplinkEnvelope,
    decode_downlink,
    decode_uplink,
    encode_downlink,
    encode_uplink,
)
from walle_stream.wire.frame import FeatureRecord, decode_body, encode_body
from walle_stream.wire.rows import PartitionHead

sys.path.insert(0, str(Path(__file__).parent))
from cloud_end import CloudEnd
from topics_of_tests import fresh_model, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]


def frame(number, sizes=(2,), partition=0):
    records = [
        FeatureRecord("d", "t", "1", number + place, json.dumps("x" * size).encode(), b"", number)
        for place, size in enumerate(sizes)
    ]
    body = encode_body(records, "zstd")
    return encode_uplink(UplinkEnvelope(partition, 1, "ab" * 8, number, body))


def received(model, count):
    found, position = [], 0

    def behind():
        return cloud.receiver.receive(position, 1 << 20)

    with closing(CloudEnd(model)) as cloud:
        while len(found) < count:
            for _, data in until(behind):
                position += 1
                found += [each.sequence_number for each in decode_body(decode_uplink(data).body)]
    return found


def acknowledged(tunnel, count, partition=0):
    found = []
    until(lambda: found.extend(tunnel.acks(partition)) or len(found) >= count)
    return found


class Forwarder:
    """An address that leads to the broker from the moment it is opened."""

    def __init__(self, broker=""):
        self._broker = broker
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def open(self, stack):
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", self.port)))
        # who waits in accept() would take one more connection from a socket that is only closed
        stack.callback(self._server.shutdown, socket.SHUT_RDWR)
        Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                inner, _ = self._server.accept()
            except OSError:
                return
            try:
                outer = socket.create_connection(tuple(self._broker.rsplit(":", 1)))
            except OSError:  # a test has killed the broker
                inner.close()
                continue
            for pair in ((inner, outer), (outer, inner)):
                Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        finally:
            source.close()


def test_a_broker_that_is_down_at_the_start_is_waited_for(address, driver, caplog):
    forwarder = Forwarder(address)
    with ExitStack() as stack:
        model = stack.enter_context(fresh_model(address, driver=driver))
        absent = model.model_copy(update={"brokers": (f"127.0.0.1:{forwarder.port}",)})
        tunnel = stack.enter_context(closing(CONNECTOR.open_device(absent, 1 << 20)))
        for number in range(1, 6):
            tunnel.send([(0, number, frame(number))])
        assert list(tunnel.acks(0)) == []
        assert f"127.0.0.1:{forwarder.port}: Connection refused" in caplog.text
        forwarder.open(stack)
        assert acknowledged(tunnel, 5) == [1, 2, 3, 4, 5]
        assert received(model, 5) == [1, 2, 3, 4, 5]


def test_records_go_up_over_tls(broker, address, driver):
    tls = {"ca": broker.files().ca}
    with fresh_model(address) as model:
        keys = model.model_dump() | {"brokers": broker.address("tls"), "tls": tls, "driver": driver}
        with closing(
            CONNECTOR.open_device(KafkaTunnelModel.model_validate(keys), 1 << 20)
        ) as tunnel:
            tunnel.send([(0, 1, frame(1))])
            assert acknowledged(tunnel, 1) == [1]
        assert received(model, 1) == [1]


def test_a_tunnel_without_a_broker_closes_at_once(driver):
    forwarder = Forwarder()
    keys = {"topic": "t", "down_topic": "t-down", "driver": driver}
    model = KafkaTunnelModel(brokers=f"127.0.0.1:{forwarder.port}", **keys)
    tunnel = CONNECTOR.open_device(model, 1 << 20)
    tunnel.send([(0, 1, frame(1))])
    assert not tunnel.downlink.receive(0, 0, 100)
    closer = Thread(target=tunnel.close)
    closer.start()
    closer.join(30)
    assert not closer.is_alive()


def test_a_missing_topic_is_told_at_the_start(address):
    with fresh_model(address) as model:
        lacking = model.model_copy(update={"topic": f"{model.topic}-no"})
        with pytest.raises(TopicError, match="does not exist: walle topics FILE --create"):
            CONNECTOR.open_device(lacking, 1 << 20)


def test_a_partition_that_the_topic_lacks_ends_the_run(address, driver):
    with (
        fresh_model(address, partitions=2, driver=driver) as model,
        closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel,
    ):
        tunnel.send([(2, 1, frame(1, partition=2))])

        def failed():
            try:
                tunnel.acks(2)
            except TopicError as error:
                return error
            return None

        assert "has no partition 2" in str(until(failed))


@pytest.mark.parametrize("limit", ["topic", "pipeline"])
def test_a_record_that_is_too_large_is_told_and_the_partition_goes_on(
    address, limit, driver, caplog
):
    caplog.set_level(logging.ERROR, "walle_connectors")
    # as plain text, so that what the broker measures is what was made
    with fresh_model(address, codec="none", max_bytes=20_000, driver=driver) as model:
        larger = model.model_copy(update={"max_bytes": 1 << 20}) if limit == "topic" else model
        with closing(CONNECTOR.open_device(larger, 1 << 20)) as tunnel:
            tunnel.send([(0, 1, frame(1, [10, 50_000, 10, 10]))])
            tunnel.send([(0, 2, frame(5, [10]))])
            assert acknowledged(tunnel, 2) == [1, 2]
            assert tunnel.refused_records == 1
        assert received(model, 4) == [1, 3, 4, 5]
    [line] = [each.getMessage() for each in caplog.records if "too large" in each.getMessage()]
    assert "device d, task t, number 2" in line
    assert "max.message.bytes" in line


def test_many_frames_of_all_partitions_arrive_once_each_in_order(address, driver):
    with (
        fresh_model(address, linger_ms=2, driver=driver) as model,
        closing(CONNECTOR.open_device(model, 64_000)) as tunnel,
    ):
        for number in range(1, 301):
            for partition in range(5):
                tunnel.send([(partition, number, frame(2 * number - 1, [200, 200], partition))])
        for partition in range(5):
            assert acknowledged(tunnel, 300, partition) == list(range(1, 301))
        found = received(model, 3_000)
    assert sorted(found) == sorted(list(range(1, 601)) * 5)


def test_foreign_bytes_in_the_topic_are_counted_and_passed_over(address):
    with fresh_model(address) as model, closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
        with closing(raw_producer(model)) as producer:
            producer.send(model.topic, b"\xff", b"k", partition=0).get(30)
            producer.send(model.down_topic, b"\xff", b"k", partition=0).get(30)
        tunnel.send([(0, 1, frame(1))])
        with closing(CloudEnd(model)) as cloud:
            found = until(lambda: len(got := cloud.receiver.receive(0, 1 << 20)) > 1 and got)
            assert [(position, bool(data)) for position, data in found] == [
                (1, False),
                (2, True),
            ]
            cloud.send_down(DownlinkEnvelope("d", "k", b"{}"))
        messages = until(lambda: len(got := tunnel.downlink.receive(0, 0, 1 << 20)) > 1 and got)
        assert [position for position, _ in messages] == [1, 2]
        assert decode_downlink(messages[1][1]).payload == b"{}"


def raw_producer(model):
    return KafkaProducer(**model.client_options())


def delete_before(model, topic, offset):
    with admin_client(model) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def test_what_retention_deleted_is_told_and_reading_goes_on(address, caplog):
    with fresh_model(address) as model, closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
        for number in range(1, 7):
            tunnel.send([(0, number, frame(number))])
        acknowledged(tunnel, 6)
        delete_before(model, model.topic, 4)
        with closing(CloudEnd(model)) as cloud:
            found = until(lambda: cloud.receiver.records({0: 2}).get(0))
        assert found[-1].offset == 5
        assert "records 2 to 3 of partition 0 were deleted before they were read" in caplog.text


def test_a_message_that_is_too_large_is_told_and_a_reply_becomes_an_error(address, caplog):
    long = encode_reply(CloudReply(1, "ab" * 8, "cd" * 8, value=Raw(b'"%s"' % (b"x" * 3_000))))
    with fresh_model(address, max_bytes=2_000) as model:
        with closing(CloudEnd(model)) as cloud:
            cloud.send_down(
                DownlinkEnvelope("d", "k", b"x" * 3_000),
                DownlinkEnvelope("d", REPLY_KIND, long),
                DownlinkEnvelope("d", "k", b"{}"),
            )
            assert cloud.downlink_sender.refused_records == 1
            cloud.downlink_sender.send([(77, 1, encode_downlink(DownlinkEnvelope("d", "k", b"")))])
            with pytest.raises(TopicError, match="has no partition 77"):
                until(lambda: cloud.downlink_sender.acks(77))
        with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
            messages = until(lambda: len(got := tunnel.downlink.receive(0, 0, 1 << 20)) > 1 and got)
    reply, small = [decode_downlink(data) for _, data in messages]
    assert "3002 bytes, more than the tunnel takes" in decode_reply(reply.payload).error
    assert small.payload == b"{}"
    assert "a message for device d" in caplog.text


def test_topics_are_made_once(address):
    with fresh_model(address) as model:
        needed = [NeededTopic(model.topic, "test", 9)]
        create_topics(model, needed)  # is there: left as it is
        with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
            tunnel.send([(0, 1, frame(1))])
            assert acknowledged(tunnel, 1) == [1]


def made_again(model, topic):
    from kafka.errors import TopicAlreadyExistsError

    def make():
        with admin_client(model) as admin:
            try:
                admin.create_topics({topic: {"num_partitions": 5, "replication_factor": 1}})
            except TopicAlreadyExistsError:
                return False
        return True

    with admin_client(model) as admin:
        admin.delete_topics([topic])
    until(make)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("count", [3, 8])
def test_messages_of_a_topic_that_was_made_anew_are_all_taken(address, is_running, count):
    head, found = PartitionHead(), []

    def send(model, total):
        with closing(CloudEnd(model)) as cloud:
            cloud.send_down(*(message("d1", n + 1, f"s{len(found)}") for n in range(total)))

    def take(tunnel, total):
        take_down = taking(Rows(), tunnel.downlink)

        def is_all():
            found.extend(number for _, number in named(take_down(head)))
            return len(found) >= total

        until(is_all)

    with fresh_model(address) as model:
        send(model, 5)
        with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
            take(tunnel, 5)
            if is_running:
                made_again(model, model.down_topic)
                send(model, count)
                take(tunnel, 5 + count)
        if not is_running:
            made_again(model, model.down_topic)
            send(model, count)
            with closing(CONNECTOR.open_device(model, 1 << 20)) as tunnel:
                take(tunnel, 5 + count)
    assert found == [*range(1, 6), *range(1, count + 1)]
    assert head.downlink_position == count
