"""What the look at a broker says of topics; the broker is a dictionary."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust")

from aiokafka.errors import KafkaConnectionError

from walle_connectors.faust import preflight
from walle_connectors.faust.preflight import TopicShape, look_at_topic
from walle_connectors.faust.settings import KafkaPart
from walle_stream.errors import BrokerUnreachableError, TunnelError

PART = KafkaPart(brokers="127.0.0.1:9092", topic="features")


class Consumer:
    """Each question is answered by the next of the given leaders by topic."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self._client = self

    async def fetch_all_metadata(self):
        leaders = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        partitions = {
            name: {
                number: SimpleNamespace(leader=leader, replicas=[1])
                for number, leader in enumerate(each)
            }
            for name, each in leaders.items()
        }
        return SimpleNamespace(
            topics=lambda **_: list(partitions),
            partitions_for_topic=lambda name: set(partitions[name]),
            _partitions=partitions,
        )

    async def stop(self):
        pass


def look(monkeypatch, *answers, changelogs=()):
    async def connect(_part):
        return Consumer(*answers)

    monkeypatch.setattr(preflight, "connect", connect)
    return asyncio.run(look_at_topic(PART, changelogs))


def test_a_topic_that_nobody_leads_yet_is_waited_for(monkeypatch):
    starting, there = {"features": [-1, 1]}, {"features": [1, 1]}
    assert look(monkeypatch, starting, starting, there) == TopicShape(2, 1)


def test_so_are_changelogs(monkeypatch):
    starting = {"features": [1, 1], "log": [-1, -1]}
    there = {"features": [1, 1], "log": [1, 1]}
    assert look(monkeypatch, starting, there, changelogs=["log"]) == TopicShape(2, 1)


def test_a_topic_that_is_not_there_is_said(monkeypatch):
    with pytest.raises(TunnelError, match="is not on"):
        look(monkeypatch, {"other": [1]})


def test_a_broker_that_does_not_answer_is_said_once(monkeypatch):
    class Deaf:
        def __init__(self, **_options):
            pass

        async def start(self):
            raise KafkaConnectionError("refused")

        async def stop(self):
            pass

    monkeypatch.setattr(preflight, "AIOKafkaConsumer", Deaf)
    with pytest.raises(BrokerUnreachableError) as raised:
        asyncio.run(look_at_topic(PART))
    assert str(raised.value).count("no broker answers") == 1
