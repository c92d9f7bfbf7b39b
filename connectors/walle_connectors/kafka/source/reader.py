"""Reader of all partitions of a topic, without other readers.

Records of a poll are handed out at once. Only the consumer buffers: it fetches ahead by some MiB
while its owner is busy.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Final, override

import msgspec

from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Fetcher, Polled, Record, Records
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.offsets import Beginning, TopicPosition, decode_positions
from walle_connectors.kafka.source.records import RecordDecoder
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.ports import DeadLetter, DeadLetterRoute, Unread
from walle_stream.reading import Lane, LaneReader, Opening, record_dead_letter
from walle_stream.reading.offsets import encode_position
from walle_stream.wire.record import TRACE_HEADER

_log = logging.getLogger(__name__)

_POLL_MS: Final = 5
"""Wait of a read without records while its owner waits for something else."""

_QUIET_MS: Final = 25
"""The same while the owner is idle; longer, since a poll costs a third of a CPU millisecond."""


class TopicLane(Lane[TopicPosition]):
    """State of a partition while it is read."""

    __slots__ = ("begin", "end", "goal", "is_at_end")

    _uncounted = 0

    def __init__(self, number: int, done: TopicPosition) -> None:
        """Start at ``done``."""
        super().__init__(number, done)
        self.begin = self.goal = self.end = 0
        """Offsets: ``begin`` is the start of this run, ``goal`` the partition's end at that time
        (for progress), ``end`` the stop or the end of the known records (for unread records)."""
        self.is_at_end = False
        """Whether all wanted records are read, even if the end is not reported yet."""


class KafkaReader(LaneReader[TopicPosition]):
    """Reader of a topic that was opened at its partitions' offsets. For one thread.

    It waits for brokers that are down: the library reconnects, and no offset moves.
    """

    _lanes: dict[int, TopicLane]  # type: ignore[assignment] # created with their bounds

    def __init__(
        self,
        client: TopicClient,
        model: KafkaSourceModel,
        decoder: RecordDecoder,
        opening: Opening,
        fetcher: Fetcher,
    ) -> None:
        """Open all partitions of ``opening``; own the client and the fetcher; blocks.

        Raises:
            SourceError: An offset does not belong to this topic, or its record is gone.
        """
        beginning = TopicPosition(next=0, topic=model.topic)
        opening = opening._replace(limit=opening.own_limit)
        super().__init__(opening._replace(offsets={}, numbers=()), beginning)
        self._client = client
        self._fetcher = fetcher
        self._decoder = decoder
        self._arrived_ms = 0.0
        self._is_closed = False
        self._beginning = Beginning(
            topic=model.topic,
            topic_id=client.identity.topic_id,
            cluster=client.identity.cluster,
            stops_at_end=model.stop_at_end,
            on_missing=model.on_missing_offset,
        )
        if opening.own:
            lanes = self._bring(opening.own, opening.offsets)
            self._fetcher.assign(opening.own)
            self._add(lanes)

    @override
    @property
    def progress(self) -> float:
        """Share of the records present at the opening that are read; -1 without partitions."""
        lanes = list(self._lanes.values())  # another thread may call this
        if not lanes:
            return -1.0
        whole = sum(lane.goal - lane.begin for lane in lanes)
        done = sum(min(lane.done.next, lane.goal) - lane.begin for lane in lanes)
        return done / whole if whole > 0 else 1.0

    @override
    @property
    def unread(self) -> Unread:
        """Unread records up to the newest known record, and the age of the oldest of them."""
        lanes = list(self._lanes.values())  # another thread may call this
        rows = sum(lane.end - lane.done.next for lane in lanes)
        if not (lanes and rows):
            return Unread(0, 0, 0) if lanes else Unread()
        read_ms = min(lane.time_ms for lane in lanes if lane.end > lane.done.next)
        return Unread(rows, time_ms=max(wall_ms() - read_ms, 0) if read_ms >= 0 else -1)

    @override
    def close(self) -> None:
        """Disconnect; may be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._fetcher.close()
            self._client.close()

    # Partitions

    def _bring(
        self, numbers: Sequence[int], offsets: Mapping[int, bytes], cut: Sequence[int] = ()
    ) -> dict[int, TopicLane]:
        """Return lanes at the start of each partition; asks the brokers."""
        stored = decode_positions(offsets, self._client.topic, self._client.identity.cluster)
        lanes = {}
        for number, bounds in self._client.bounds(numbers).items():
            before = stored.get(number)
            position = self._beginning.position(number, before, bounds, is_cut=number in cut)
            lane = lanes[number] = TopicLane(number, position)
            if position != before:
                # store the start now, since the topic may have changed at the next run
                self._give(lane, position)
            lane.begin = position.next
            goal = bounds.end if position.end < 0 else position.end
            lane.goal = lane.end = max(goal, position.next)
        return lanes

    def _add(self, lanes: Mapping[int, TopicLane]) -> None:
        """Start reading lanes that are assigned to the fetcher."""
        for number, lane in lanes.items():
            self._fetcher.seek(number, lane.done.next)
            self._lanes[number] = lane
            if lane.done.is_end:
                self._reach_end(number, lane)
            else:
                self._fetcher.resume(number)

    # Reading

    @override
    def _go_on(self) -> bool:
        self._client.expect_count()
        found = self._poll(min(self.batch_events, self._last_row - self._row))
        if found is not None:
            self._follow_poll(found)
        return False  # one poll per read

    def _follow_poll(self, found: Polled) -> None:
        if found.gone or found.cut:
            self._client.look_again()
        if self._client.is_remade:
            # checked after the poll: its records may already belong to the new topic
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
        """Return the result of a poll; None while the fetcher is in use."""
        polled = self._fetcher.poll(_POLL_MS if self.is_urgent else _QUIET_MS, most)
        self._arrived_ms = monotonic_ms()
        return polled

    def _begin_anew(self) -> None:
        self._client.accept()
        topic_id = self._client.identity.topic_id
        self._beginning = msgspec.structs.replace(self._beginning, topic_id=topic_id)
        offsets = {n: encode_position(lane.done) for n, lane in self._lanes.items()}
        lanes = self._bring(list(offsets), offsets)
        self._fetcher.begin_anew()
        self._add(lanes)
        _log.warning(
            "topic %r was recreated while it was read: reading continues with the new topic as "
            "spec.source.onMissingOffset says",
            self._client.topic,
        )

    def _begin_again(self, numbers: Sequence[int], cut: Sequence[int] = ()) -> None:
        offsets = {
            number: encode_position(self._lanes[number].done)
            for number in (*numbers, *cut)
            if number in self._lanes
        }
        self._add(self._bring(list(offsets), offsets, cut))

    def _take(self, number: int, lane: TopicLane, records: Records) -> None:
        end = lane.done.end
        if 0 <= end <= records.offsets[-1]:
            records = records.before(end)
            self._reach_end(number, lane)
            if not records.offsets:
                return
        behind = records.offsets[-1] + 1
        newest = self._fetcher.end(number) if end < 0 else end
        lane.end = max(lane.end, behind, newest)
        for offset, headers in zip(records.offsets, records.headers, strict=False):
            for name, value in headers:
                if name == TRACE_HEADER and value:
                    lane.traces[offset] = value.decode(errors="replace")
        events = self._decoder.decode_all(records)
        if events is None:
            for record in records.rows():
                self._take_each(lane, record)
        else:
            lane.events, lane.origins = events, list(records.offsets)
            lane.accepted_rows = len(events)
            self._count_rows(lane, records.values)
        self._give(lane, msgspec.structs.replace(lane.done, next=behind, part=0))
        if behind == end:
            self._reach_end(number, lane)

    def _take_each(self, lane: TopicLane, record: Record) -> None:
        """Decode a record that may yield any number of events, or none."""
        here = msgspec.structs.replace(lane.done, next=record.offset, part=0)
        if len(lane.events) >= self.batch_events:
            self._give(lane, here)
        # a partly delivered record yields the rest and is counted already
        part = lane.done.part if lane.done.next == record.offset else 0
        found = self._decoder.decode(record)
        if not part:
            self._count_rows(lane, [record.value])
        if not isinstance(found, list):
            lane.dead_letters.append(self._letter(lane, record, *found))
            return
        lane.accepted_rows += not part
        for event in found[part:]:
            if len(lane.events) >= self.batch_events:
                self._give(lane, msgspec.structs.replace(here, part=part))
            lane.events.append(event)
            lane.origins.append(record.offset)
            part += 1

    def _count_rows(self, lane: TopicLane, values: Sequence[bytes | None]) -> None:
        self._row += len(values)
        lane.raw_bytes += sum(map(len, filter(None, values))) + len(values)
        if self.keeps_raw:
            lane.raw += [(value or b"") + b"\n" for value in values]

    def _letter(
        self, lane: TopicLane, record: Record, route: DeadLetterRoute, reason: str, error: str
    ) -> DeadLetter:
        return record_dead_letter(
            record.value or b"",
            route=route,
            reason=reason,
            origin=f"{self._client.topic}[{lane.number}]@{record.offset}",
            device_id=self._decoder.device(record.key),
            error=error,
        )

    def _give(self, lane: TopicLane, position: TopicPosition) -> None:
        arrived_ms = self._arrived_ms if lane.events else None
        batch = lane.cut(position, f"{self._client.topic}[{lane.number}]", arrived_ms)
        self._ready.append(batch)

    @override
    def _position(self, lane: Lane[TopicPosition], *, is_end: bool = False) -> TopicPosition:
        return lane.done  # lanes are empty between reads

    def _reach_end(self, number: int, lane: TopicLane) -> None:
        lane.is_at_end = True
        self._fetcher.pause(number)

    def _look_for_ends(self) -> None:
        # the last offsets may hold no record: transaction markers, or compacted records
        for number, lane in self._lanes.items():
            if lane.done.end < 0 or lane.is_at_end:
                continue
            at = self._fetcher.position(number)
            if at is not None and at >= lane.done.end:
                self._reach_end(number, lane)

    def _tell_ends(self) -> None:
        # a limit is no end: with a limit, ends are reported only if all come before the limit
        is_limited = self._last_row < sys.maxsize
        if is_limited and (self._row >= self._last_row or not self._is_at_end):
            return
        untold = {
            number: lane
            for number, lane in self._lanes.items()
            if lane.is_at_end and not lane.done.is_end
        }
        if untold:
            # an end is final, so make sure that it is the end of the topic that was opened
            self._client.look_again()
            if self._client.is_remade:
                self._begin_anew()
                return
        for lane in untold.values():
            end = msgspec.structs.replace(lane.done, next=lane.done.end, part=0, is_end=True)
            self._give(lane, end)
        if self._is_at_end:
            self._finish()

    @property
    def _is_at_end(self) -> bool:
        return all(lane.is_at_end for lane in self._lanes.values())
