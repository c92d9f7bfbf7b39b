"""What is known of a topic, without a broker."""

import uuid
from threading import Thread
from types import SimpleNamespace

import pytest
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaConnectionError
from kafka.future import Future

from walle_connectors.kafka import topic_ids
from walle_connectors.kafka.topic_ids import known_topic_id, look_again


@pytest.mark.parametrize("said", [None, uuid.UUID(int=0), uuid.UUID(int=7)])
def test_an_id_is_that_of_a_topic_which_is_there(said):
    found = known_topic_id(SimpleNamespace(topic_id={"t": said}.get), "t")
    assert found == (str(said) if said and said.int else "")


def test_a_look_ends_with_the_answer_or_an_error_and_not_later_than_its_time(monkeypatch):
    answer, cluster = Future(), ClusterMetadata()
    monkeypatch.setattr(cluster, "request_update", lambda: answer)
    monkeypatch.setattr(topic_ids, "_LOOK_S", 0.01)
    look_again(cluster, "t")
    assert [each.name for each in cluster.metadata_request().topics] == ["t"]
    monkeypatch.setattr(topic_ids, "_LOOK_S", 600.0)
    looking = Thread(target=look_again, args=(cluster, "t"), daemon=True)
    looking.start()
    answer.failure(KafkaConnectionError("away"))
    looking.join(60)
    assert not looking.is_alive()
