"""What a reader does with errors of its polls; no broker."""

from types import SimpleNamespace

import pytest

from kafka import errors
from walle_connectors.kafka.source.client import TopicIdentity, source_errors
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.reader import KafkaReader
from walle_stream.errors import BrokerUnreachableError


def reader(*answers):
    left = list(answers)

    def poll(_wait_ms, max_records):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"records": max_records, **answer}

    client = SimpleNamespace(
        consumer=SimpleNamespace(poll=poll),
        topic="raw",
        identity=TopicIdentity(4, "c", "t"),
    )
    model = KafkaSourceModel(brokers="127.0.0.1:9092", topic="raw")
    return KafkaReader(client, model, 10, None)


def test_a_broker_that_is_only_starting_is_waited_for(caplog):
    starting = errors.MetadataEmptyBrokerList("the whole answer")
    made = reader(starting, starting, {})
    assert [made._poll_consumer(1, 7) for _ in range(3)] == [{}, {}, {"records": 7}]
    [said] = [record.getMessage() for record in caplog.records]
    assert said == "topic 'raw': reading waits for the brokers (MetadataEmptyBrokerList)"


@pytest.mark.parametrize(
    "error", [errors.LogTruncationError({}), errors.UnknownTopicOrPartitionError("raw")]
)
def test_what_waiting_does_not_mend_is_raised(error):
    with pytest.raises(type(error)):
        reader(error)._poll_consumer(1, 7)


def test_at_a_start_it_is_said_in_a_line():
    with pytest.raises(BrokerUnreachableError, match="only starting"), source_errors("raw"):
        raise errors.MetadataEmptyBrokerList("the whole answer")
