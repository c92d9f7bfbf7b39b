"""Reads partitions of a topic; here all of them, which nobody else has.

What a poll gives is handed out at once: nothing is held back but in the consumer, which
fetches ahead by some MiB while its owner is busy, and no further.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import (
    NO_RECORDS,
    Fetcher,
    Polled,
    PythonFetcher,
    Records,
)
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.offsets import (
    Beginning,
    Position,
    decode_positions,
    encode_position,
)
from walle_connectors.kafka.source.records import BatchMaker
from walle_stream.clock import monotonic_ms
from walle_stream.faults import crash_point
from walle_stream.ports import SourceBatch, Unread

_log = logging.getLogger(__name__)

POLL_MS: Final = 5
"""How long a read waits where nothing has come."""


class Lane(msgspec.Struct):
    """A partition while it is read."""

    position: Position
    begin: int
    """Where it began in this run."""
    goal: int
    """What it had then: the end of progress."""
    end: int
    """Behind the newest record that is known, or where it stops: the end of what is unread."""
    is_at_end: bool = False
    """Nothing is left of what it should read; it may not have been told yet."""


class KafkaReader:
    """A topic that was opened at its partitions' offsets. One thread.

    It waits for brokers that go away: the library connects again, and no offset moves.
    """

    def __init__(
        self,
        client: TopicClient,
        model: KafkaSourceModel,
        batch_events: int,
        limit: int | None,
        fetcher: Fetcher | None = None,
    ) -> None:
        """Begin without partitions.

        Args:
            client: Taken.
            model: The source's definition.
            batch_events: Most events in a batch.
            limit: Most records in this run.
            fetcher: Taken; the client's own consumer when left out.
        """
        self.batch_events = batch_events
        """Most events in a batch; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their values."""
        self._client = client
        self._fetcher = fetcher or PythonFetcher(client)
        self._lanes: dict[int, Lane] = {}
        self._left = limit
        self._arrived_ms = 0.0
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
        self._fetcher.assign(numbers)
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

    @property
    def unread(self) -> Unread:
        """Records up to the newest that the brokers have told of; unknown without partitions."""
        lanes = list(self._lanes.values())  # may be asked by another thread
        return Unread(sum(lane.end - lane.position.next for lane in lanes) if lanes else -1)

    def close(self) -> None:
        """Disconnect; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._fetcher.close()
            self._client.close()

    # Partitions

    def _begin(
        self, numbers: Sequence[int], offsets: Mapping[int, bytes], cut: Sequence[int] = ()
    ) -> dict[int, Lane]:
        """Find where partitions begin; asks the brokers."""
        stored = decode_positions(offsets, self._client.topic, self._client.identity.cluster)
        lanes = {}
        for number, bounds in self._client.bounds(numbers).items():
            before = stored.get(number)
            position = self._beginning.position(number, before, bounds, is_cut=number in cut)
            if position != before:
                # from now on it is known, whatever the topic has when we come again
                self._ready.append(self._maker.make(number, NO_RECORDS, encode_position(position)))
            goal = bounds.end if position.end < 0 else position.end
            goal = max(goal, position.next)
            lanes[number] = Lane(position, position.next, goal, goal)
        return lanes

    def _add(self, lanes: Mapping[int, Lane]) -> None:
        """Read lanes that the fetcher has been assigned."""
        for number, lane in lanes.items():
            self._fetcher.seek(number, lane.position.next)
            self._lanes[number] = lane
            if lane.position.is_end:
                self._reach_end(number, lane)
            else:
                self._fetcher.resume(number)

    # Reading

    def _go_on(self) -> None:
        self._client.expect_count()
        if self._left is not None and self._left <= 0:
            self._finish()
            return
        most = self.batch_events if self._left is None else min(self.batch_events, self._left)
        found = self._poll(most)
        if found is None:
            return
        if found.gone or found.cut:
            self._client.look_again()
        if self._client.is_remade:
            # behind the poll: what it gave may be the other topic's already
            self._begin_anew()
            return
        for number, records in found.records.items():
            lane = self._lanes.get(number)
            if lane is not None and not lane.is_at_end:
                self._take(number, lane, records)
        if found.gone or found.cut:
            self._begin_again(found.gone, found.cut)
        elif not found.records:
            self._look_for_ends()
        self._tell_ends()

    def _poll(self, most: int) -> Polled | None:
        """Return what has come; None while the fetcher is not to be touched."""
        return self._poll_fetcher(POLL_MS, most)

    def _poll_fetcher(self, wait_ms: int, most: int) -> Polled:
        polled = self._fetcher.poll(wait_ms, most)
        self._arrived_ms = monotonic_ms()
        return polled

    def _begin_anew(self) -> None:
        """Apply the policy to a topic that was made again while it was read."""
        self._client.accept()
        topic_id = self._client.identity.topic_id
        self._beginning = msgspec.structs.replace(self._beginning, topic_id=topic_id)
        offsets = {n: encode_position(lane.position) for n, lane in self._lanes.items()}
        lanes = self._begin(list(offsets), offsets)
        self._fetcher.begin_anew()
        self._add(lanes)
        _log.warning(
            "topic %r was deleted and made again while it was read: it goes on with the new one, "
            "as spec.source.onMissingOffset says",
            self._client.topic,
        )

    def _begin_again(self, numbers: Sequence[int], cut: Sequence[int] = ()) -> None:
        offsets = {
            number: encode_position(self._lanes[number].position)
            for number in (*numbers, *cut)
            if number in self._lanes
        }
        self._add(self._begin(list(offsets), offsets, cut))

    def _take(self, number: int, lane: Lane, records: Records) -> None:
        end = lane.position.end
        if 0 <= end <= records.offsets[-1]:
            records = records.before(end)
            self._reach_end(number, lane)
            if not records.offsets:
                return
        lane.position = msgspec.structs.replace(lane.position, next=records.offsets[-1] + 1)
        newest = self._fetcher.end(number) if end < 0 else end
        lane.end = max(lane.end, lane.position.next, newest)
        batch = self._maker.make(
            number,
            records,
            encode_position(lane.position),
            keeps_raw=self.keeps_raw,
            arrived_ms=self._arrived_ms,
        )
        self._ready.append(batch)
        if self._left is not None:
            self._left -= len(records.offsets)
        if lane.position.next == end:
            self._reach_end(number, lane)

    def _reach_end(self, number: int, lane: Lane) -> None:
        lane.is_at_end = True
        self._fetcher.pause(number)

    def _look_for_ends(self) -> None:
        # the last offsets may be of no record: marks of transactions, or compacted away
        for number, lane in self._lanes.items():
            if lane.position.end < 0 or lane.is_at_end:
                continue
            at = self._fetcher.position(number)
            if at is not None and at >= lane.position.end:
                self._reach_end(number, lane)

    def _tell_ends(self) -> None:
        # a limit is no end: with one, ends are told when it was not reached before them all
        if self._left is not None and (self._left <= 0 or not self._is_at_end):
            return
        untold = {
            number: lane
            for number, lane in self._lanes.items()
            if lane.is_at_end and not lane.position.is_end
        }
        if untold:
            # an end is for good: it must be that of the topic that was opened
            self._client.look_again()
            if self._client.is_remade:
                self._begin_anew()
                return
        for number, lane in untold.items():
            lane.position = msgspec.structs.replace(
                lane.position, next=lane.position.end, is_end=True
            )
            batch = self._maker.make(number, NO_RECORDS, encode_position(lane.position))
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
