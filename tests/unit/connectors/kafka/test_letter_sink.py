"""The sink of dead letters before a topic that refuses some, by a stand-in of the producer."""

import threading

import pytest
from kafka.errors import MessageSizeTooLargeError

from walle_connectors.kafka import python_producer, sending, topics
from walle_connectors.kafka.cluster import FoundTopic
from walle_connectors.kafka.dead_letters import sink
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.dead_letters.sink import KafkaDeadLetterSink
from walle_stream.errors import TopicError
from walle_stream.ports import DeadLetter, KeptLetter

WAIT_S = 30


class Future:
    def __init__(self, error):
        self.error = error

    def add_callback(self, call, *arguments):
        if self.error is None:
            call(*arguments, None)

    def add_errback(self, call, *arguments):
        if self.error is not None:
            call(*arguments, self.error)


class Producer:
    """Answers at once; behind a letter that it refuses it takes nothing."""

    def __init__(self, topic):
        self.topic, self.failure = topic, None

    def partitions_for(self, _topic):
        return {0}

    def send(self, _topic, value, key, _headers, *, partition):
        assert partition is None  # the key decides
        error = self.failure = self.failure or self.topic.error(key, value)
        if error is None:
            self.topic.taken.append(key)
        return Future(error)

    def halt(self):
        pass


class Topic:
    """Of the broker: which letters it refuses."""

    def __init__(self):
        self.taken, self.refuses = [], lambda _key, _value: None

    def error(self, key, value):
        return self.refuses(key, value)


def kept(number, device):
    letter = DeadLetter(route="decode", reason="r", origin="o", device_id=device, record=b"x" * 9)
    return KeptLetter(letter=letter, incarnation="i", partition=0, number=number, pipeline="p")


@pytest.fixture
def topic(monkeypatch):
    topic = Topic()
    monkeypatch.setattr(sending, "_AGAIN_S", 0)
    monkeypatch.setattr(sending, "connect", lambda make, _stopped, _what: make())
    monkeypatch.setattr(sink, "check_topics", lambda *_: None)
    monkeypatch.setattr(python_producer, "check_topics", lambda *_: None)
    monkeypatch.setattr(python_producer, "make_producer", lambda *_, **__: Producer(topic))
    monkeypatch.setattr(python_producer, "close_producer", lambda *_: None)
    topic.settings = {}
    monkeypatch.setattr(
        topics, "find_topics", lambda *_, **__: {"t": FoundTopic(1, 1, topic.settings)}
    )
    return topic


def opened():
    return KafkaDeadLetterSink(
        KafkaDeadLetterModel.model_validate({"brokers": "h:1", "topic": "t"})
    )


def sent(made, letters):
    for each in letters:
        made.send(each)
    found = set()
    tick = threading.Event()
    for _ in range(WAIT_S * 100):
        found.update(made.acks(0))
        if len(found) == len(letters):
            break
        tick.wait(0.01)
    made.close()
    return found


def test_a_letter_that_is_too_large_is_cut_until_it_fits(topic):
    topic.refuses = lambda _key, value: MessageSizeTooLargeError("no") if len(value) > 3 else None
    assert sent(opened(), [kept(1, "d"), kept(2, "e")]) == {1, 2}
    assert topic.taken == [b"d", b"e"]


def test_a_letter_that_is_never_taken_holds_up_no_other(topic, caplog):
    topic.refuses = lambda key, _value: MessageSizeTooLargeError("no") if key is None else None
    letters = [kept(n, "" if n % 3 == 1 else f"d{n}") for n in range(1, 8)]
    assert sent(opened(), letters) == set(range(1, 8))
    assert sorted(set(topic.taken)) == [b"d2", b"d3", b"d5", b"d6"]
    told = [each.getMessage() for each in caplog.records if "is not sent" in each.getMessage()]
    assert len(told) == 3


def test_a_compacted_topic_is_refused_at_the_start(topic):
    topic.settings = {"cleanup.policy": "compact,delete"}
    with pytest.raises(TopicError, match=r"\(spec\.deadLetters\.topic\) is compacted.*=delete"):
        opened()


def test_settings_that_may_not_be_seen_are_no_reason_to_refuse(topic, monkeypatch):
    def refuse(*_, **__):
        raise TopicError("the cluster refuses")

    monkeypatch.setattr(topics, "find_topics", refuse)
    assert sent(opened(), [kept(1, "d")]) == {1}
    assert topic.taken == [b"d"]
