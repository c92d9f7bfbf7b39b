"""What kafka-python's consumer knows of a topic, without a broker."""

import uuid
from threading import Thread
from types import SimpleNamespace

import pytest
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaConnectionError
from kafka.future import Future

from walle_connectors.brokers import Connection
from walle_connectors.kafka import python_cluster
from walle_connectors.kafka.python_cluster import PythonCluster


def watching(metadata):
    made = PythonCluster(Connection(brokers="h:1"))
    made._model, made._metadata = SimpleNamespace(topic="t"), metadata
    return made


@pytest.mark.parametrize("said", [None, uuid.UUID(int=0), uuid.UUID(int=7)])
def test_an_id_is_that_of_a_topic_which_is_there(said):
    told = SimpleNamespace(
        topic_id={"t": said}.get, partitions_for_topic={"t": {0, 1}}.get, cluster_id="c"
    )
    found = watching(told).known
    assert found.topic_id == (str(said) if said and said.int else "")
    assert (found.partition_count, found.cluster) == (2, "c")


def test_a_look_ends_with_the_answer_or_an_error_and_not_later_than_its_time(monkeypatch):
    answer, metadata = Future(), ClusterMetadata()
    monkeypatch.setattr(metadata, "request_update", lambda: answer)
    monkeypatch.setattr(python_cluster, "ASK_S", 0.01)
    made = watching(metadata)
    made.look_again()
    assert [each.name for each in metadata.metadata_request().topics] == ["t"]
    monkeypatch.setattr(python_cluster, "ASK_S", 600.0)
    looking = Thread(target=made.look_again, daemon=True)
    looking.start()
    answer.failure(KafkaConnectionError("away"))
    looking.join(60)
    assert not looking.is_alive()
