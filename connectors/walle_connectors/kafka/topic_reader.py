"""Reads partitions of a topic ahead, so that who asks never waits.

One thread has the consumer; what it read lies in memory, bounded in bytes, until the
caller's position passes it. Positions are the caller's alone: nothing is committed in
the broker, there is no group.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from threading import Condition, Event, Thread
from typing import Any, Final

from kafka.errors import KafkaError, OffsetOutOfRangeError

from kafka import TopicPartition
from walle_connectors.brokers import Connection
from walle_connectors.kafka.connecting import BOOTSTRAP_MS, connect
from walle_connectors.kafka.topic_ids import known_topic_id, look_again, open_consumer

_log = logging.getLogger(__name__)

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that lie in memory; one fetch may exceed it."""

_POLL_MS: Final = 100
_AGAIN_S: Final = 0.5
_RECORD_BYTES: Final = 200  # key, headers and objects, about


class _Queue:
    # records of one partition, ascending in offset

    __slots__ = ("is_moved", "position", "records")

    def __init__(self, position: int) -> None:
        self.position = position  # the next offset that the caller wants
        self.records: deque[Any] = deque()
        self.is_moved = True  # the consumer must seek


class TopicReader:
    """Partitions of one topic from given positions. Thread-safe."""

    def __init__(self, connection: Connection, topic: str) -> None:
        """Begin to connect with the first question; a broker that is down is waited for."""
        self.topic_id = ""
        """Which topic the records are of; empty while none came, or where brokers do not say."""
        self._connection = connection
        self._topic = topic
        self._condition = Condition()
        self._stopped = Event()
        self._lanes: dict[int, _Queue] = {}
        self._bytes = 0
        self._thread = Thread(target=self._run, name=f"walle-kafka-{topic}", daemon=True)
        self._is_begun = False

    def take(self, positions: Mapping[int, int]) -> Mapping[int, Sequence[Any]]:
        """Return each partition's records behind its position, ascending; never blocks.

        A position is the next offset that is wanted; equal positions give equal records. Earlier
        records are forgotten; going back reads again.
        """
        with self._condition:
            for partition, position in positions.items():
                self._move(partition, position)
            if not self._is_begun and not self._stopped.is_set():
                # not before the first question: positions are known from then on
                self._is_begun = True
                self._thread.start()
            return {
                partition: tuple(lane.records)
                for partition, lane in sorted(self._lanes.items())
                if lane.records
            }

    def close(self) -> None:
        """Stop reading; may be called twice."""
        with self._condition:
            self._stopped.set()
            self._condition.notify_all()
        if self._is_begun:
            self._thread.join()

    def _move(self, partition: int, position: int) -> None:
        lane = self._lanes.get(partition)
        if lane is None:
            self._lanes[partition] = _Queue(position)
            self._condition.notify_all()
            return
        if position < lane.position:
            self._bytes -= sum(map(_size, lane.records))
            lane.records.clear()
            lane.is_moved = True
            self._condition.notify_all()
        else:
            while lane.records and lane.records[0].offset < position:
                self._bytes -= _size(lane.records.popleft())
                if self._bytes <= AHEAD_BYTES:
                    self._condition.notify_all()
        lane.position = position

    # The thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            made = connect(
                self._connection, self._make, self._stopped, f"reading topic {self._topic!r}"
            )
            if made is None:
                return
            consumer, cluster = made
            try:
                self._read(consumer, cluster)
            except KafkaError as error:
                _log.warning("reading topic %r begins anew: %r", self._topic, error)
                self._stopped.wait(_AGAIN_S)
            finally:
                consumer.close(autocommit=False, timeout_ms=1_000)

    def _make(self) -> tuple[Any, Any]:
        return open_consumer(
            **self._connection.client_options(),
            metrics_enabled=False,
            enable_auto_commit=False,
            # by hand: the policy of a consumer says nothing when records were lost
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            max_poll_records=5_000,
            request_timeout_ms=10_000,
            # so soon at the latest a topic is seen to be another one; a device may pay by the byte
            metadata_max_age_ms=60_000,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )

    def _read(self, consumer: Any, cluster: Any) -> None:
        assigned: set[int] = set()
        with self._condition:
            for lane in self._lanes.values():
                lane.is_moved = True
        while not self._stopped.is_set():
            moved = self._assign(consumer, assigned)
            for partition, offset in moved.items():
                consumer.seek(TopicPartition(self._topic, partition), offset)
            try:
                found = consumer.poll(timeout_ms=_POLL_MS) if assigned else {}
            except OffsetOutOfRangeError as error:
                self._go_on_behind_loss(consumer, cluster, error)
                continue
            if self._is_same(cluster):
                self._keep(found)
            self._wait(bool(assigned))

    def _is_same(self, cluster: Any) -> bool:
        """Return whether the topic is still the same one; each poll's records are checked."""
        found = known_topic_id(cluster, self._topic)
        if not found or found == self.topic_id:
            return True
        with self._condition:
            is_first, self.topic_id = not self.topic_id, found
            if is_first:
                return True
            # who asks sees the other id, and begins at its beginning
            for lane in self._lanes.values():
                lane.records.clear()
                lane.position, lane.is_moved = 0, True
            self._bytes = 0
        return False

    def _assign(self, consumer: Any, assigned: set[int]) -> dict[int, int]:
        # where the consumer must go: new partitions, and those that were moved back
        with self._condition:
            new = self._lanes.keys() - assigned
            moved = {}
            for partition, lane in self._lanes.items():
                if lane.is_moved:
                    lane.is_moved = False
                    last = lane.records[-1].offset + 1 if lane.records else lane.position
                    moved[partition] = last
        if new:
            assigned |= new
            consumer.assign([TopicPartition(self._topic, each) for each in sorted(assigned)])
            # a new assignment forgets positions
            with self._condition:
                for partition, lane in self._lanes.items():
                    if partition in assigned and partition not in moved:
                        last = lane.records[-1].offset + 1 if lane.records else lane.position
                        moved[partition] = last
        return moved

    def _keep(self, found: Mapping[Any, Sequence[Any]]) -> None:
        with self._condition:
            for place, records in found.items():
                lane = self._lanes[place.partition]
                if lane.is_moved:
                    continue  # read before the caller went back
                for record in records:
                    if record.offset >= lane.position:
                        lane.records.append(record)
                        self._bytes += _size(record)

    def _wait(self, has_partitions: bool) -> None:
        with self._condition:
            if self._bytes > AHEAD_BYTES:
                self._condition.wait_for(
                    lambda: (
                        self._stopped.is_set()
                        or self._bytes <= AHEAD_BYTES
                        or any(lane.is_moved for lane in self._lanes.values())
                    )
                )
            elif not has_partitions:
                self._condition.wait(_AGAIN_S)

    def _go_on_behind_loss(self, consumer: Any, cluster: Any, error: OffsetOutOfRangeError) -> None:
        look_again(cluster, self._topic)
        if not self._is_same(cluster):
            return
        for place, offset in dict(error.args[0]).items():
            first = consumer.beginning_offsets([place])[place]
            end = consumer.end_offsets([place])[place]
            if 0 < offset < first:
                _log.error(
                    "topic %r: records %d to %d of partition %d were deleted before they were "
                    "read; it goes on behind them: raise retention.ms of the topic",
                    self._topic,
                    offset,
                    first - 1,
                    place.partition,
                )
            elif offset > end:
                # a broker lost records, or it was made anew while nobody looked: who asks knows
                # which one it was, and goes back if this is another
                _log.warning(
                    "partition %d of topic %r ends at %d, but was read up to %d before: it is "
                    "another topic, or lost its last records",
                    place.partition,
                    self._topic,
                    end,
                    offset,
                )
                first = end
            consumer.seek(place, first)


def _size(record: Any) -> int:
    return len(record.value or b"") + len(record.key or b"") + _RECORD_BYTES


def within(records: Sequence[Any], max_bytes: int) -> list[Any]:
    """Return the first records up to a bound of bytes, and the one that passes it."""
    left = max_bytes

    def fits(record: Any) -> bool:
        nonlocal left
        is_allowed = left > 0
        left -= _size(record)
        return is_allowed

    return list(takewhile(fits, records)) or list(records[:1])
