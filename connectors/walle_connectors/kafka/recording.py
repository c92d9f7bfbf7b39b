"""Writes what a topic has into a file of events, in the order of the records' times.

A line is the record's value with ``device_id`` from its key and ``ingest_time_ms`` from its
time, so that replaying the file gives the same events at the same distances.
"""

import heapq
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_connectors.file_stream import written
from walle_connectors.kafka.source.client import TopicClient, source_errors
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.topics import NeededTopic, check_topics
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceError

_AHEAD: Final = 2_000  # records of a partition that wait for the others
_POLL_MS: Final = 200
_STALL_MS: Final = 60_000  # without a record, or an offset of none, before the end


def record(model: KafkaSourceModel, file: Path) -> dict[str, Any]:
    """Write the records that a topic has now into a new file; blocks.

    The file is there when all was read; it is compressed if its name ends in ``.gz``. Returns
    ``events``, ``bytes``, and ``skipped``: records that are no event of a device.

    Raises:
        SourceError: The topic cannot be read, or the file is there, or cannot be written.
        TopicError: The topic is not there, or may not be seen.
        BrokerUnreachableError: No broker answers, or TLS is refused.
    """
    if file.exists() or not file.name:
        raise SourceError(f"{file} is there already: name a new file, or delete it")
    check_topics(model, [NeededTopic(model.topic, "--topic")])
    client = TopicClient(model, named_by="--topic")
    counts = {"events": 0, "bytes": 0, "skipped": 0}
    try:
        with written(file) as out:
            for each in _in_order(client):
                line = _line(each)
                if line is None:
                    counts["skipped"] += 1
                else:
                    counts["events"] += 1
                    counts["bytes"] += out.write(line)
    finally:
        client.close()
    return counts


def _in_order(client: TopicClient) -> Iterator[Any]:
    """Merge the partitions by time; a partition that is far ahead waits."""
    consumer = client.consumer
    bounds = client.bounds(range(client.identity.partition_count))
    ends = {client.place(n): each.end for n, each in bounds.items() if each.end > each.begin}
    waiting: dict[Any, deque[Any]] = {place: deque() for place in ends}
    with source_errors(client.topic):
        consumer.assign(list(ends))
        for place in ends:
            consumer.seek(place, bounds[place.partition].begin)
    heap: list[tuple[int, int, int, Any]] = []  # the next of each partition that has one
    open_places = set(ends)
    patience = _Patience(client.topic)
    while open_places or heap:
        with source_errors(client.topic):
            patience.expect(_fetch(client, waiting, ends, open_places))
        in_heap = {each[1] for each in heap}
        for place, records in waiting.items():
            if records and place.partition not in in_heap:
                _push(heap, place, records)
        missing = {place.partition for place in open_places} - {each[1] for each in heap}
        while heap and not missing:
            _, number, _, first = heapq.heappop(heap)
            yield first
            place = client.place(number)
            if waiting[place]:
                _push(heap, place, waiting[place])
            elif place in open_places:
                missing.add(number)


def _push(heap: list[Any], place: Any, records: deque[Any]) -> None:
    first = records.popleft()
    heapq.heappush(heap, (first.timestamp, place.partition, first.offset, first))


def _fetch(
    client: TopicClient, waiting: dict[Any, deque[Any]], ends: dict[Any, int], open_places: set[Any]
) -> bool:
    """Take what has come; returns whether anything moved."""
    consumer = client.consumer
    if not open_places:
        return True
    paused = consumer.paused()
    for place in open_places:
        if place not in paused and len(waiting[place]) >= _AHEAD:
            consumer.pause(place)
        elif place in paused and len(waiting[place]) < _AHEAD // 2:
            consumer.resume(place)
    before = _positions(consumer, open_places)
    # all that the library has in hand: of a partition that is paused with some left it may give
    # and fetch nothing any more, resumed or not (3.0.12)
    for place, records in consumer.poll(_POLL_MS, max_records=sys.maxsize).items():
        waiting[place].extend(each for each in records if each.offset < ends[place])
    after = _positions(consumer, open_places)
    for place in list(open_places):
        # by the consumer's position: the last offsets may be of no record
        if after[place] >= ends[place]:
            open_places.discard(place)
            consumer.pause(place)
    return after != before


def _positions(consumer: Any, places: set[Any]) -> dict[Any, int]:
    return {place: consumer.position(place, timeout_ms=0) or 0 for place in places}


class _Patience:
    # a broker may be away for a while, but who waits for the file must hear of it

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._moved_ms = monotonic_ms()

    def expect(self, has_moved: bool) -> None:
        now_ms = monotonic_ms()
        if has_moved:
            self._moved_ms = now_ms
        elif now_ms - self._moved_ms > _STALL_MS:
            raise SourceError(
                f"topic {self._topic!r}: nothing came for {_STALL_MS // 1000} s, although its end "
                "is not reached: see that all brokers answer, then run again"
            )


def _line(record_: Any) -> bytes | None:
    try:
        event = msgspec.json.decode(record_.value or b"", type=dict[str, Any])
        device_id = (record_.key or b"").decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not device_id:
        return None
    event |= {"device_id": device_id, "ingest_time_ms": record_.timestamp}
    return msgspec.json.encode(event) + b"\n"
