"""Reads partitions of a topic; here all of them, which nobody else has.

What a poll gives is handed out at once: nothing is held back but in the consumer, which
fetches ahead by some MiB while its owner is busy, and no further.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from walle_connectors.kafka.source.client import TopicClient, source_errors
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.offsets import (
    Beginning,
    Position,
    decode_positions,
    encode_position,
)
from walle_connectors.kafka.source.polling import Polled
from walle_connectors.kafka.source.records import BatchMaker
from walle_stream.clock import monotonic_ms
from walle_stream.faults import crash_point
from walle_stream.ports import SourceBatch

_log = logging.getLogger(__name__)

POLL_MS: Final = 5
"""How long a read waits where nothing has come."""

_AGAIN_MS: Final = 100
_TELL_WAIT_MS: Final = 30_000.0


class Lane(msgspec.Struct):
    """A partition while it is read."""

    position: Position
    begin: int
    """Where it began in this run."""
    goal: int
    """What it had then: the end of progress."""
    is_at_end: bool = False
    """Nothing is left of what it should read; it may not have been told yet."""


class KafkaReader:
    """A topic that was opened at its partitions' offsets. One thread.

    It waits for brokers that go away: kafka-python connects again, and no offset moves.
    """

    def __init__(
        self, client: TopicClient, model: KafkaSourceModel, batch_events: int, limit: int | None
    ) -> None:
        """Begin without partitions.

        Args:
            client: Taken.
            model: The source's definition.
            batch_events: Most events in a batch.
            limit: Most records in this run.
        """
        self.batch_events = batch_events
        """Most events in a batch; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their values."""
        self._client, self._consumer = client, client.consumer
        self._lanes: dict[int, Lane] = {}
        self._left = limit
        self._arrived_ms = 0.0
        self._tell_wait_ms = 0.0
        self._ready: list[SourceBatch] = []
        self._is_done = self._is_closed = False
        self._maker = BatchMaker(model.topic, model.max_record_bytes)
        self._beginning = Beginning(
            topic=model.topic,
            topic_id=client.identity.topic_id,
            cluster=client.identity.cluster,
            stops_at_end=model.stop_at_end,
            on_missing=model.on_missing_offset,
        )

    def take_all(self, offsets: Mapping[int, bytes]) -> None:
        """Take all partitions of the topic; blocks.

        Args:
            offsets: By partition; one without begins where the definition says.

        Raises:
            SourceError: One is not of this topic, or what it names is gone.
        """
        numbers = range(self._client.identity.partition_count)
        lanes = self._begin(numbers, offsets)
        with source_errors(self._client.topic):
            self._consumer.assign([self._client.place(number) for number in numbers])
        self._add(lanes)

    def read(self) -> Sequence[SourceBatch]:
        """Return what has come, or wait for some milliseconds.

        Raises:
            SourceError: The topic cannot be read on.
        """
        if not self._ready and not self._is_done:
            self._go_on()
        return self._hand_out()

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned; nothing is held back."""
        self._is_done = True
        return self._hand_out()

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all was returned."""
        return self._is_done and not self._ready

    @property
    def progress(self) -> float:
        """Share read of what the partitions had when they were opened; -1 without any."""
        lanes = list(self._lanes.values())  # may be asked by another thread
        if not lanes:
            return -1.0
        whole = sum(lane.goal - lane.begin for lane in lanes)
        done = sum(min(lane.position.next, lane.goal) - lane.begin for lane in lanes)
        return done / whole if whole > 0 else 1.0

    def close(self) -> None:
        """Disconnect; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._client.close()

    # Partitions

    def _begin(self, numbers: Sequence[int], offsets: Mapping[int, bytes]) -> dict[int, Lane]:
        """Find where partitions begin; asks the brokers."""
        stored = decode_positions(offsets, self._client.topic, self._client.identity.cluster)
        lanes = {}
        for number, bounds in self._client.bounds(numbers).items():
            before = stored.get(number)
            position = self._beginning.position(number, before, bounds)
            if position != before:
                # from now on it is known, whatever the topic has when we come again
                self._ready.append(self._maker.make(number, (), encode_position(position)))
            goal = bounds.end if position.end < 0 else position.end
            lanes[number] = Lane(position, position.next, max(goal, position.next))
        return lanes

    def _add(self, lanes: Mapping[int, Lane]) -> None:
        """Read lanes that the consumer has been assigned."""
        with source_errors(self._client.topic):
            for number, lane in lanes.items():
                place = self._client.place(number)
                self._consumer.seek(place, lane.position.next)
                self._lanes[number] = lane
                if lane.position.is_end:
                    lane.is_at_end = True
                    self._consumer.pause(place)
                else:
                    self._consumer.resume(place)

    # Reading

    def _go_on(self) -> None:
        if self._left is not None and self._left <= 0:
            self._finish()
            return
        most = self.batch_events if self._left is None else min(self.batch_events, self._left)
        found = self._poll(most)
        if found is None:
            return
        for place, records in found.items():
            lane = self._lanes.get(place.partition)
            if lane is not None and not lane.is_at_end:
                self._take(place, lane, records)
        if not found:
            self._look_for_ends()
        self._tell_ends()

    def _poll(self, most: int) -> Polled | None:
        """Return what has come; None while the consumer is not to be touched."""
        return self._ask(most)

    def _ask_consumer(self, most: int) -> Polled | None:
        return self._poll_consumer(POLL_MS, most)

    def _poll_consumer(self, wait_ms: int, most: int) -> Polled:
        from kafka import errors  # noqa: PLC0415 - an extra

        try:
            polled: Polled = self._consumer.poll(wait_ms, max_records=most)
        except (
            errors.UnknownTopicOrPartitionError,
            errors.UnknownTopicIdError,
            errors.InconsistentTopicIdError,
        ):
            raise  # deleted, or made again: nothing to wait for
        except errors.RetriableError as error:
            # a broker that was started again answers before it knows of any broker: the
            # library asks once more with the next poll
            self._tell_wait(type(error).__name__)
            time.sleep(min(wait_ms, _AGAIN_MS) / 1000.0)
            return {}
        self._arrived_ms = monotonic_ms()
        return polled

    def _tell_wait(self, reason: str) -> None:
        now_ms = monotonic_ms()
        if now_ms >= self._tell_wait_ms:
            self._tell_wait_ms = now_ms + _TELL_WAIT_MS
            _log.warning("topic %r: reading waits for the brokers (%s)", self._client.topic, reason)

    def _ask(self, most: int) -> Polled | None:
        from kafka.errors import OffsetOutOfRangeError  # noqa: PLC0415 - an extra

        with source_errors(self._client.topic):
            try:
                return self._ask_consumer(most)
            except OffsetOutOfRangeError as error:
                # retention was faster than we
                numbers = [place.partition for place in error.args[0]]
        self._begin_again([number for number in numbers if number in self._lanes])
        return {}

    def _begin_again(self, numbers: Sequence[int]) -> None:
        offsets = {number: encode_position(self._lanes[number].position) for number in numbers}
        self._add(self._begin(numbers, offsets))

    def _take(self, place: Any, lane: Lane, records: Sequence[Any]) -> None:
        end = lane.position.end
        if 0 <= end <= records[-1].offset:
            records = [record for record in records if record.offset < end]
            self._reach_end(place, lane)
            if not records:
                return
        lane.position = msgspec.structs.replace(lane.position, next=records[-1].offset + 1)
        batch = self._maker.make(
            place.partition,
            records,
            encode_position(lane.position),
            keeps_raw=self.keeps_raw,
            arrived_ms=self._arrived_ms,
        )
        self._ready.append(batch)
        if self._left is not None:
            self._left -= len(records)
        if lane.position.next == end:
            self._reach_end(place, lane)

    def _reach_end(self, place: Any, lane: Lane) -> None:
        lane.is_at_end = True
        self._consumer.pause(place)

    def _look_for_ends(self) -> None:
        # the last offsets may be of no record: marks of transactions, or compacted away
        for number, lane in self._lanes.items():
            if lane.position.end < 0 or lane.is_at_end:
                continue
            place = self._client.place(number)
            with source_errors(self._client.topic):
                at = self._consumer.position(place, timeout_ms=0)
            if at is not None and at >= lane.position.end:
                self._reach_end(place, lane)

    def _tell_ends(self) -> None:
        # a limit is no end: with one, ends are told when it was not reached before them all
        if self._left is not None and (self._left <= 0 or not self._is_at_end):
            return
        for number, lane in self._lanes.items():
            if not lane.is_at_end or lane.position.is_end:
                continue
            lane.position = msgspec.structs.replace(
                lane.position, next=lane.position.end, is_end=True
            )
            batch = self._maker.make(number, (), encode_position(lane.position))
            batch.is_end = True
            self._ready.append(batch)
        if self._is_at_end:
            self._finish()

    def _finish(self) -> None:
        self._is_done = True

    @property
    def _is_at_end(self) -> bool:
        return all(lane.is_at_end for lane in self._lanes.values())

    def _hand_out(self) -> list[SourceBatch]:
        batches, self._ready = self._ready, []
        if batches:
            crash_point("read.batch")
        return batches
