"""Recording a topic without a broker: one that gives nothing, and partitions that wait."""

import sys
from types import SimpleNamespace

import pytest

from walle_connectors.kafka import recording
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.offsets import Bounds
from walle_stream.errors import SourceError


class Consumer:
    """Has records that it never gives."""

    def paused(self):
        return set()

    def position(self, _place, **_):
        return 0

    def assign(self, _places):
        pass

    def seek(self, _place, _offset):
        pass

    def poll(self, _wait_ms, max_records):
        # a partition that is paused with records in hand may never go on
        assert max_records == sys.maxsize
        return {}


class Place(int):
    """As the library names a partition."""

    @property
    def partition(self):
        return int(self)


class Client(TopicClient):
    """Of one partition."""

    def __init__(self, *_, **__):
        self.consumer, self.topic = Consumer(), "raw"
        self.identity = SimpleNamespace(partition_count=1)

    def place(self, partition):
        return Place(partition)

    def bounds(self, _partitions):
        return {0: Bounds(0, 5, 0)}

    def close(self):
        pass


def test_a_topic_that_gives_nothing_is_given_up(monkeypatch, tmp_path):
    now_ms = iter(range(0, 10_000_000, 1_000))
    monkeypatch.setattr(recording, "monotonic_ms", lambda: next(now_ms))
    monkeypatch.setattr(recording, "TopicClient", Client)
    monkeypatch.setattr(recording, "check_topics", lambda *_: None)
    with pytest.raises(SourceError, match="nothing came for 60 s"):
        recording.record(SimpleNamespace(topic="raw"), tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []
