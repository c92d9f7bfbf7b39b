"""What kafka-python's fetcher does with errors of its polls; no broker."""

from types import SimpleNamespace

import pytest

from kafka import errors
from walle_connectors.kafka.source.client import source_errors
from walle_connectors.kafka.source.fetching import NO_RECORDS, Polled, PythonFetcher
from walle_stream.errors import BrokerUnreachableError, SourceError

ROW = SimpleNamespace(offset=7, timestamp=5, key=b"d", value=b"{}")


class Place(SimpleNamespace):
    __hash__ = object.__hash__


def fetcher(*answers):
    left = list(answers)

    def poll(_wait_ms, max_records):
        assert max_records == 7
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {Place(partition=3): answer}

    return PythonFetcher(SimpleNamespace(consumer=SimpleNamespace(poll=poll), topic="raw"))


def test_records_come_by_columns():
    polled = fetcher([ROW]).poll(1, 7)
    assert polled.gone == ()
    assert polled.records[3] == ([7], [5], [b"d"], [b"{}"])
    assert NO_RECORDS.before(9) == NO_RECORDS


def test_a_broker_that_is_only_starting_is_waited_for(caplog):
    starting = errors.MetadataEmptyBrokerList("the whole answer")
    made = fetcher(starting, starting)
    assert [made.poll(1, 7) for _ in range(2)] == [Polled(), Polled()]
    [said] = [record.getMessage() for record in caplog.records]
    assert said == "topic 'raw': reading waits for the brokers (MetadataEmptyBrokerList)"


def test_a_listener_ends_a_poll_without_a_word(caplog):
    error = errors.KafkaError("in a listener")
    error.__cause__ = InterruptedError()
    assert fetcher(error).poll(1, 7) == Polled()
    assert not caplog.records


@pytest.mark.parametrize(
    "error", [errors.LogTruncationError({}), errors.UnknownTopicOrPartitionError("raw")]
)
def test_what_waiting_does_not_mend_is_raised(error):
    with pytest.raises(SourceError):
        fetcher(error).poll(1, 7)


def test_at_a_start_it_is_said_in_a_line():
    with pytest.raises(BrokerUnreachableError, match="only starting"), source_errors("raw"):
        raise errors.MetadataEmptyBrokerList("the whole answer")
