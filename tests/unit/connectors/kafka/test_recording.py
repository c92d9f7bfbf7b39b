"""Reading a topic to its end without a broker: one that gives nothing."""

import sys

import pytest

from walle_connectors.kafka.source import client
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.offsets import Bounds
from walle_stream.errors import SourceError


class Consumer:
    """Has records that it never gives."""

    def position(self, _place, **_):
        return 0

    def assignment(self):
        return set()

    def assign(self, _places):
        pass

    def seek(self, _place, _offset):
        pass

    def poll(self, _wait_ms, max_records):
        # what it has in hand would be lost when another partition is next
        assert max_records == sys.maxsize
        return {}


class Client(TopicClient):
    """Of one partition."""

    def __init__(self):
        self.consumer, self.topic = Consumer(), "raw"

    def place(self, partition):
        return partition


def test_a_topic_that_gives_nothing_is_given_up(monkeypatch):
    now_ms = iter(range(0, 10_000_000, 1_000))
    monkeypatch.setattr(client, "monotonic_ms", lambda: next(now_ms))
    with pytest.raises(SourceError, match="nothing came for 60 s"):
        list(Client().records(0, Bounds(0, 5, 0)))
