"""A topic in memory, in place of a broker: what a reader asks a client and a fetcher."""

from bisect import bisect_left
from typing import ClassVar

from walle_connectors.kafka.cluster import TopicIdentity
from walle_connectors.kafka.source.fetching import Polled, Record, columns
from walle_connectors.kafka.source.offsets import Bounds


class Client:
    """Stands in for ``TopicClient``; ``topics`` has the records by partition."""

    topics: ClassVar[dict[str, list[list[Record]]]] = {}
    is_remade = False

    def __init__(self, model):
        self.topic, self.partitions = model.topic, self.topics[model.topic]
        self.identity = TopicIdentity(len(self.partitions), "cluster", f"id-{model.topic}")

    def bounds(self, numbers):
        return {n: Bounds(0, self._end(n), 0) for n in numbers}

    def _end(self, number):
        records = self.partitions[number]
        return records[-1].offset + 1 if records else 0

    def expect_count(self):
        pass

    def look_again(self):
        pass

    def close(self):
        pass


class Fetcher:
    """Stands in for ``PythonFetcher``."""

    def __init__(self, client, _model, *, has_headers=False):
        assert not has_headers
        self._client, self._next, self._paused = client, {}, set()

    def assign(self, numbers):
        self._next = dict.fromkeys(numbers, 0)

    def seek(self, number, offset):
        self._next[number] = offset

    def pause(self, number):
        self._paused.add(number)

    def resume(self, number):
        self._paused.discard(number)

    def position(self, number):
        return self._next[number]

    def end(self, number):
        return self._client._end(number)

    def poll(self, _wait_ms, most):
        found = {}
        for number, offset in self._next.items():
            records = self._client.partitions[number]
            begin = bisect_left(records, offset, key=lambda each: each.offset)
            taken = [] if number in self._paused else records[begin : begin + most]
            if taken:
                found[number] = columns(taken)
                self._next[number] = taken[-1].offset + 1
                most -= len(taken)
            if not most:
                break
        return Polled(found)

    def close(self):
        pass
