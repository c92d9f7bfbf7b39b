"""Reading a topic to its end without a broker: one that gives nothing."""

import pytest

from walle_connectors.kafka.source import client
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.offsets import Bounds
from walle_stream.errors import SourceError


class Fetcher:
    """Has records that it never gives."""

    def position(self, _number):
        return 0

    def assign(self, _numbers):
        pass

    def seek(self, _number, _offset):
        pass

    def poll(self, _wait_ms, _most):
        return Polled()


class Client(TopicClient):
    """Of one partition."""

    def __init__(self):
        self._fetcher, self._fetched, self.topic = Fetcher(), -1, "raw"


def test_a_topic_that_gives_nothing_is_given_up(monkeypatch):
    now_ms = iter(range(0, 10_000_000, 1_000))
    monkeypatch.setattr(client, "monotonic_ms", lambda: next(now_ms))
    with pytest.raises(SourceError, match="no record came for 60 s"):
        list(Client().records(0, Bounds(0, 5, 0)))
