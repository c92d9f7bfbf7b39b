"""Requests to a cluster and its refusals are the same with each library."""

from contextlib import closing

import pytest

from tests.integration.kafka.topics_of_tests import until
from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import Place, answered
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.writing import TopicWriter
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError, WalleError

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

DRIVERS = ("kafka-python", "confluent")


@pytest.fixture
def connection(address, driver):
    return Connection(brokers=address, driver=driver)


@pytest.fixture
def asked(connection):
    with closing(open_cluster(connection)) as made:
        yield made


def model(connection, topic, **keys):
    return KafkaSourceModel.model_validate({**connection.reach(), "topic": topic, **keys})


def test_topics_are_made_once_grow_and_go(asked, topic):
    name, settings = topic(partitions=1), ("retention.ms", "no.such")
    made = f"{name}-2"
    try:
        for _ in range(2):
            asked.create(made, 2, 1, {"retention.ms": "77000"})
        found = asked.describe([made, name, f"{name}-not"], settings)
        assert set(found) == {made, name}
        assert (found[made].partitions, found[made].replicas, found[made].leaderless) == (2, 1, 0)
        assert found[made].settings == {"retention.ms": "77000"}
        asked.grow(made, 3, is_trial=True)
        assert asked.describe([made])[made].partitions == 2
        asked.grow(made, 3, is_trial=False)
        until(lambda: asked.describe([made])[made].partitions == 3)
        for is_trial in (True, False):
            with pytest.raises(TopicError, match="the cluster refuses"):
                asked.grow(made, 1, is_trial=is_trial)
    finally:
        asked.delete(made)
    until(lambda: made not in asked.describe([made]))
    with pytest.raises(TopicError):
        asked.delete(made)
    with pytest.raises(TopicError, match="the cluster refuses"):
        asked.create(made, 1, 99, {})
    assert asked.brokers() == 1


def test_a_group_that_nobody_knows_has_nothing(asked, topic):
    group = topic("none")
    assert answered(lambda: asked.members(group)) == 0
    assert answered(lambda: asked.committed(group, "t")) == {}


def test_places_are_told_by_begin_end_and_time(connection, topic):
    name = topic(partitions=2)
    with closing(TopicWriter(connection, name, max_bytes=1_000)) as writer:
        for number in range(3):
            writer.write(b"k", b"%d" % number, partition=1)
        writer.flush()
    with closing(TopicClient(model(connection, name))) as client:
        cluster, bounds = client.cluster, client.bounds([0, 1])
        assert cluster.offsets([0, 1], Place.BEGIN) == {0: 0, 1: 0}
        assert cluster.offsets([0, 1], Place.END) == {0: 0, 1: 3}
        assert cluster.offsets([0, 1], 1) == {0: -1, 1: 0}
        assert cluster.offsets([1], 2**41) == {1: -1}
        rows = list(client.records(1, bounds[1]))
        assert [(each.offset, each.key, each.value) for each in rows] == [
            (number, b"k", b"%d" % number) for number in range(3)
        ]
    with closing(TopicClient(model(connection, name, startAt={"timestamp": 2**41}))) as client:
        assert client.bounds([1])[1].start == 3


def test_a_topic_that_is_made_again_is_another_one(address, asked, topic):
    name = topic(partitions=1)
    models = [model(Connection(brokers=address, driver=each), name) for each in DRIVERS]
    clients = [TopicClient(each) for each in models]
    try:
        assert len({each.identity for each in clients}) == 1  # both libraries say the same
        assert not any(each.is_remade for each in clients)
        asked.delete(name)
        until(lambda: name not in asked.describe([name]))
        asked.create(name, 1, 1, {})
        for each in clients:
            each.look_again()
        until(lambda: all(each.is_remade for each in clients))
        for each in clients:
            each.accept()
        assert len({each.identity for each in clients}) == 1
    finally:
        for each in clients:
            each.close()


def failure(call):
    with pytest.raises(WalleError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return type(caught.value)


def test_whatever_is_wrong_has_one_class_and_one_line(broker, connection, topic):
    missing = model(connection, topic("none") + "-not")
    assert failure(lambda: TopicClient(missing)) is SourceError
    assert failure(lambda: TopicWriter(connection, missing.topic, max_bytes=100)) is TopicError
    away = connection.model_copy(update={"brokers": ("127.0.0.1:1",)})
    keys = {"connectTimeout": "200ms"}
    assert failure(lambda: TopicClient(model(away, "t", **keys))) is BrokerUnreachableError
    assert failure(lambda: open_cluster(away).brokers()) is BrokerUnreachableError
    plain = connection.model_copy(update={"brokers": (broker.address("mutual"),)})
    assert failure(lambda: open_cluster(plain).brokers()) is BrokerUnreachableError
    tls = {"brokers": broker.address("mutual"), "tls": {"ca": str(broker.files().ca)}}
    nobody = Connection.model_validate({**tls, "driver": connection.driver})
    assert failure(lambda: open_cluster(nobody).brokers()) is BrokerUnreachableError
