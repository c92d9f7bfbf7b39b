"""Errors in polls of kafka-python's fetcher; no broker."""

from types import SimpleNamespace

import pytest

from kafka import TopicPartition, errors
from walle_connectors.kafka.python_errors import source_errors
from walle_connectors.kafka.source import python_fetcher as fetching
from walle_connectors.kafka.source.fetching import Polled, Records
from walle_connectors.kafka.source.python_fetcher import PythonFetcher
from walle_stream.errors import BrokerUnreachableError, SourceError

ROW = SimpleNamespace(offset=7, timestamp=5, key=b"d", value=b"{}")


PLACES = [TopicPartition("raw", number) for number in range(4)]


def fetcher(*answers):
    left = list(answers)

    def poll(_wait_ms, max_records):
        assert max_records == 7
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {PLACES[3]: answer}

    consumer = SimpleNamespace(poll=poll)
    return PythonFetcher(SimpleNamespace(topic="raw", is_remade=False), consumer)


def test_records_come_by_columns():
    polled = fetcher([ROW]).poll(1, 7)
    assert polled.gone == ()
    assert polled.records[3][:4] == ([7], [5], [b"d"], [b"{}"])
    none = Records((), (), (), ())
    assert none.before(9) == none


def test_a_partition_is_paused_when_nothing_of_it_is_in_hand():
    paused, answers = [], [{0: [ROW] * 2, 1: [ROW] * 3}, {0: [ROW], 1: [ROW] * 3}, {1: [ROW]}]
    consumer = SimpleNamespace(
        poll=lambda *_, **__: {PLACES[n]: rows for n, rows in answers.pop(0).items()},
        assignment=lambda: {PLACES[0], PLACES[1]},  # 2 was given back
        pause=lambda *places: paused.append([place.partition for place in places]),
        resume=lambda place: paused.append(place.partition),
    )
    made = PythonFetcher(SimpleNamespace(topic="raw"), consumer)
    made.pause(0)
    made.pause(2)
    polls = [(list(made.poll(1, 5).records), list(paused)) for _ in range(2)]
    assert polls == [([1], []), ([1], [[0]])]
    made.resume(0)
    made.pause(1)
    assert (made.poll(1, 5), paused) == (Polled(), [[0], 0, [1]])


def test_a_broker_that_is_only_starting_is_waited_for(caplog):
    starting = errors.MetadataEmptyBrokerList("the whole answer")
    made = fetcher(starting, starting)
    assert [made.poll(1, 7) for _ in range(2)] == [Polled(), Polled()]
    [said] = [record.getMessage() for record in caplog.records]
    assert said == "topic 'raw': reading waits for the brokers (MetadataEmptyBrokerList)"


def test_a_login_that_is_refused_is_waited_for_and_named(caplog):
    away, refused = errors.KafkaConnectionError("closed"), errors.SaslAuthenticationFailedError("x")
    made = fetcher(away, refused, away, refused)
    assert [made.poll(1, 7) for _ in range(4)] == [Polled()] * 4
    said = [record.getMessage() for record in caplog.records]
    assert ["`sasl`" in each for each in said] == [False, True]
    with pytest.raises(BrokerUnreachableError, match="`sasl`"), source_errors("raw"):
        raise refused


def test_a_listener_ends_a_poll_without_a_word(caplog):
    error = errors.KafkaError("in a listener")
    error.__cause__ = InterruptedError()
    assert fetcher(error).poll(1, 7) == Polled()
    assert not caplog.records


def test_what_waiting_does_not_mend_is_raised():
    with pytest.raises(SourceError, match="reading is not allowed"):
        fetcher(errors.TopicAuthorizationFailedError("raw")).poll(1, 7)


def test_records_that_a_broker_lost_are_the_policys_business():
    polled = fetcher(errors.LogTruncationError({PLACES[3]: None})).poll(1, 7)
    assert polled == Polled(cut=[3])


GONE = [
    errors.UnknownTopicOrPartitionError("raw"),
    errors.UnknownTopicIdError("raw"),
    errors.InconsistentTopicIdError("raw"),
]


@pytest.mark.parametrize("error", GONE)
def test_a_topic_that_is_gone_may_be_made_again_but_not_for_ever(error, monkeypatch):
    now_ms = [1.0]
    monkeypatch.setattr(fetching, "monotonic_ms", lambda: now_ms[0])
    made = fetcher(error, error, [ROW], error, error)
    assert made.poll(1, 7) == Polled()
    now_ms[0] += 4_000
    assert made.poll(1, 7) == Polled()
    now_ms[0] += 4_000
    assert made.poll(1, 7).records
    assert made.poll(1, 7) == Polled()
    now_ms[0] += 6_000
    with pytest.raises(SourceError, match="topic 'raw' is gone: it was deleted while it was read"):
        made.poll(1, 7)


@pytest.mark.parametrize("error", GONE)
def test_a_topic_that_was_made_again_is_its_readers_business(error, monkeypatch):
    now_ms = iter(range(1, 10**6, 60_000))
    monkeypatch.setattr(fetching, "monotonic_ms", lambda: next(now_ms))
    made = fetcher(error, error)
    made._client.is_remade = True
    assert [made.poll(1, 7) for _ in range(2)] == [Polled(), Polled()]


def test_at_a_start_it_is_said_in_a_line():
    with pytest.raises(BrokerUnreachableError, match="still starting"), source_errors("raw"):
        raise errors.MetadataEmptyBrokerList("the whole answer")


def test_brokers_that_do_not_answer_may_want_tls():
    hint = "correct `tls` and `sasl`"
    with pytest.raises(BrokerUnreachableError, match=hint), source_errors("raw"):
        raise errors.KafkaTimeoutError("late")
