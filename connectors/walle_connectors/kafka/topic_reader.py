"""Reader that fetches partitions of a topic ahead, so that callers never wait.

One thread owns the client. Its records stay in memory, limited in bytes, until the caller's
position passes them. Only the caller keeps positions: there is no group and no commit to the
broker.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from threading import Condition, Event, Thread
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.connecting import connect
from walle_connectors.kafka.drivers import open_fetcher
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Fetcher, Polled, Record, Records
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_log = logging.getLogger(__name__)

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Limit of the bytes in memory; a single fetch may exceed it."""

_POLL_MS: Final = 100
_MOST: Final = 5_000
_AGAIN_S: Final = 0.5
_METADATA_MS: Final = 60_000  # notices a recreated topic; long, as devices may pay by the byte


class _Queue:
    # records of one partition, by ascending offset

    __slots__ = ("end", "goal", "position", "records")

    def __init__(self, position: int) -> None:
        self.position = position  # next offset for the caller
        self.records: deque[Record] = deque()
        self.goal: int | None = position  # offset that the fetcher must seek, if any
        self.end: int | None = None  # end at the first request; -1 once reading has reached it

    @property
    def next(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.position


class TopicReader:
    """Reader of one topic's partitions from given positions. Thread-safe."""

    def __init__(self, connection: Connection, topic: str) -> None:
        """Prepare the reader; the first request connects and waits for a broker that is down."""
        self.topic_id = ""
        """Id of the records' topic; empty before the first record or if brokers report no ids."""
        self._model = KafkaSourceModel.of(connection, topic)
        self._condition = Condition()
        self._stopped = Event()
        self._lanes: dict[int, _Queue] = {}
        self._count = 0  # number of partitions at the first look
        self._failure: TopicError | None = None
        self._bytes = 0
        self._thread = Thread(target=self._run, name=f"walle-kafka-{topic}", daemon=True)
        self._is_begun = False

    def take(self, positions: Mapping[int, int]) -> Mapping[int, Sequence[Record]]:
        """Return each partition's records from its position on, ascending; never blocks.

        A position is the next wanted offset; equal positions give equal records. Earlier records
        are dropped; a lower position reads them again.

        Raises:
            TopicError: The topic got more partitions, so devices may be in other partitions.
        """
        with self._condition:
            if self._failure is not None:
                raise self._failure
            for partition, position in positions.items():
                self._move(partition, position)
            if not self._is_begun and not self._stopped.is_set():
                # start only now, when positions are known
                self._is_begun = True
                self._thread.start()
            return {
                partition: tuple(lane.records)
                for partition, lane in sorted(self._lanes.items())
                if lane.records
            }

    def is_behind(self, partition: int) -> bool:
        """Return whether records from before the partition's first request are still unread."""
        with self._condition:
            lane = self._lanes.get(partition)
            return lane is not None and lane.end != -1

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
            self._go_back(lane, position)
            self._condition.notify_all()
        else:
            while lane.records and lane.records[0].offset < position:
                self._bytes -= lane.records.popleft().size_bytes
                if self._bytes <= AHEAD_BYTES:
                    self._condition.notify_all()
        lane.position = position

    def _go_back(self, lane: _Queue, position: int) -> None:
        self._bytes -= sum(record.size_bytes for record in lane.records)
        lane.records.clear()
        lane.position = lane.goal = position

    # The thread

    def _run(self) -> None:
        what = f"reading topic {self._model.topic!r}"
        while not self._stopped.is_set():
            made = connect(self._make, self._stopped, what)
            if made is None:
                return
            client, fetcher = made
            try:
                self._begin(client.identity.topic_id)
                self._read(client, fetcher)
            except (BrokerUnreachableError, SourceError) as error:
                _log.warning("%s starts again: %s", what, error)
                self._stopped.wait(_AGAIN_S)
            finally:
                fetcher.close()
                client.close()

    def _make(self) -> tuple[TopicClient, Fetcher]:
        client = TopicClient(self._model, metadata_ms=_METADATA_MS)
        return client, open_fetcher(client, self._model, has_headers=True)

    def _begin(self, topic_id: str) -> None:
        with self._condition:
            known, self.topic_id = self.topic_id, topic_id or self.topic_id
            for lane in self._lanes.values():
                lane.goal = lane.next
                if known and self.topic_id != known:
                    # the caller sees the new id and starts over
                    self._go_back(lane, 0)

    def _read(self, client: TopicClient, fetcher: Fetcher) -> None:
        assigned: set[int] = set()
        while not self._stopped.is_set():
            self._expect_count(client.cluster.known.partition_count)
            self._assign(fetcher, assigned)
            self._look_for_ends(client, assigned)
            found = fetcher.poll(_POLL_MS, _MOST) if assigned else Polled()
            lost = {*found.gone, *found.cut}
            if lost:
                client.look_again()
            if client.is_remade:
                return  # drop these records, which may belong to the new topic
            if lost:
                self._go_on_behind_loss(client, lost)
            self._keep(found.records)
            self._note_ends(fetcher, assigned)
            self._wait(bool(assigned))

    def _expect_count(self, count: int) -> None:
        self._count = self._count or count
        if count > self._count:
            name = self._model.topic
            self._failure = TopicError(
                f"topic {name!r} got more than its {self._count} partitions, so devices may have "
                f"moved: start again with spec.runtime.partitions={count}",
                name,
            )

    def _assign(self, fetcher: Fetcher, assigned: set[int]) -> None:
        with self._condition:
            is_new = bool(self._lanes.keys() - assigned)
            # a new assignment forgets positions
            moved = {
                number: lane.next if lane.goal is None else lane.goal
                for number, lane in self._lanes.items()
                if is_new or lane.goal is not None
            }
            for lane in self._lanes.values():
                lane.goal = None
        if is_new:
            assigned.update(moved)
            fetcher.assign(sorted(assigned))
        for partition, offset in moved.items():
            fetcher.seek(partition, offset)

    def _look_for_ends(self, client: TopicClient, assigned: set[int]) -> None:
        new = {number for number in assigned if self._lanes[number].end is None}
        for number, each in (client.bounds(new) if new else {}).items():
            self._lanes[number].end = each.end

    def _note_ends(self, fetcher: Fetcher, assigned: set[int]) -> None:
        # compare positions, since the last offsets may hold no record
        for lane, number in ((self._lanes[number], number) for number in assigned):
            if lane.end not in {None, -1} and lane.end <= (fetcher.position(number) or 0):
                lane.end = -1

    def _keep(self, found: Mapping[int, Records]) -> None:
        with self._condition:
            for partition, records in found.items():
                lane = self._lanes[partition]
                if lane.goal is not None:
                    continue  # read before the caller went back
                for record in records.rows():
                    if record.offset >= lane.position:
                        lane.records.append(record)
                        self._bytes += record.size_bytes

    def _wait(self, has_partitions: bool) -> None:
        with self._condition:
            if self._bytes > AHEAD_BYTES:
                self._condition.wait_for(
                    lambda: (
                        self._stopped.is_set()
                        or self._bytes <= AHEAD_BYTES
                        or any(lane.goal is not None for lane in self._lanes.values())
                    )
                )
            elif not has_partitions:
                self._condition.wait(_AGAIN_S)

    def _go_on_behind_loss(self, client: TopicClient, lost: set[int]) -> None:
        bounds = client.bounds(lost)
        with self._condition:
            for number, each in bounds.items():
                lane, topic = self._lanes[number], self._model.topic
                at = lane.next if lane.goal is None else lane.goal
                lane.goal = min(max(at, each.begin), each.end)
                if at < each.begin:
                    _log.error(
                        "topic %r: records %d to %d of partition %d were deleted before they were "
                        "read; reading continues after them: raise retention.ms of the topic",
                        topic,
                        at,
                        each.begin - 1,
                        number,
                    )
                elif at > each.end:
                    # a broker lost records, or the topic was recreated meanwhile; the caller knows
                    # the old topic's id and goes back if the id changed
                    _log.warning(
                        "partition %d of topic %r ends at %d, but was read up to %d before: the "
                        "topic was recreated, or lost its last records",
                        number,
                        topic,
                        each.end,
                        at,
                    )


def within(records: Sequence[Record], max_bytes: int) -> list[Record]:
    """Return the first records up to a size limit, including the record that exceeds it."""
    left = max_bytes

    def fits(record: Record) -> bool:
        nonlocal left
        is_allowed = left > 0
        left -= record.size_bytes
        return is_allowed

    return list(takewhile(fits, records)) or list(records[:1])
