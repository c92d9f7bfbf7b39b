"""librdkafka's client for administration through a stand-in; no broker."""

import weakref
from concurrent.futures import Future

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra `confluent` is missing")

from walle_connectors.brokers import Connection  # noqa: E402 - behind the extra
from walle_connectors.kafka import confluent_cluster  # noqa: E402 - same
from walle_stream.errors import BrokerUnreachableError  # noqa: E402 - same


def test_a_client_that_gets_no_answer_does_not_live_on_in_its_error(monkeypatch):
    made = []

    class Client:
        def __init__(self, _settings):
            made.append(weakref.ref(self))

        def describe_cluster(self, **_):
            answer = Future()
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT)
            answer.set_exception(confluent_kafka.KafkaException(error))
            return answer

        def poll(self, _timeout_s):
            pass

    monkeypatch.setattr(confluent_cluster, "AdminClient", Client)
    monkeypatch.setattr(confluent_cluster, "probe_brokers", lambda _: None)
    with pytest.raises(BrokerUnreachableError) as caught:
        confluent_cluster.ConfluentCluster(Connection(brokers="h:1", driver="confluent"))
    assert caught.tb is not None
    assert [each() for each in made] == [None]
