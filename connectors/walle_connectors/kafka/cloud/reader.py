"""Reader of the tunnel topic's partitions that the group assigns to this worker.

A worker is a member of its group as a host is of the source's group (``source.membership``). A
table takes the place of a host's partition and stores the offset. The offsets committed to the
group serve tools that show lag. They also carry the owner's address as metadata, and they prove
that this worker is still a member, since brokers accept commits from members alone. No stored
state depends on them.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final, override

import msgspec

from walle_connectors.kafka.cloud.letters import RefusedRecords
from walle_connectors.kafka.cloud.records import read_stretches
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Records
from walle_connectors.kafka.source.group import Group, Told
from walle_connectors.kafka.source.membership import GroupReader
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.offsets import TopicPosition
from walle_connectors.kafka.source.reader import TopicLane
from walle_connectors.kafka.source.records import RecordDecoder
from walle_stream.clock import monotonic_ms, unstopped_ms
from walle_stream.cloud.partitions import Partitions
from walle_stream.errors import BrokerUnreachableError, CloudStalledError, SourceError, TunnelError
from walle_stream.reading import Opening
from walle_stream.reading.offsets import encode_position

_log = logging.getLogger(__name__)

_POLL_RECORDS: Final = 2_000
_RENEWALS: Final = 4
"""Number of commits per session timeout, which prove that this worker is alive."""

_LOOKS: Final = 10
"""Number of checks for waiting records per patience time while a worker makes no progress."""


class WorkerClient(TopicClient):
    """A member of the workers' group."""

    @override
    def grown(self) -> SourceError:
        return SourceError(
            f"topic {self.topic!r} got more than its {self.identity.partition_count} "
            "partitions while it was read: restart the worker"
        )


class CloudReader(GroupReader):
    """Merges incoming records into tables. Used by the thread of its ``read`` alone."""

    def __init__(
        self,
        client: WorkerClient,
        group: Group,
        model: KafkaSourceModel,
        tables: Partitions,
        letters: RefusedRecords | None,
        patience_ms: float,
    ) -> None:
        """Join the group and own it and the client; the first reads bring partitions.

        Refused records go to ``letters``, or to the log alone. The worker ends when records wait
        for ``patience_ms`` without progress.
        """
        decoder = RecordDecoder(model.max_record_bytes)  # for events; this topic has none
        super().__init__(client, group, model, decoder, tables, Opening({}, (), _POLL_RECORDS))
        self._beginning = msgspec.structs.replace(
            self._beginning,
            advice="give --on-missing earliest to continue with the remaining records (missing "
            "ones are counted as gaps), or use a newer snapshot",
        )
        self._tables = tables
        self._letters = letters
        self._session_ms = model.session_timeout_ms
        self._patience_ms = patience_ms
        self._done, self._seen_ms = -1, 0.0
        self._idle_ms = self._look_ms = 0.0  # time without progress; when to check next

    # Partitions

    @override
    def _expect_own(self, told: Mapping[int, Told]) -> None:
        # without a table here, the topic must still hold every record
        for number, bounds in self._client.bounds(told).items():
            offset = told[number].offset
            if offset and bounds.begin and self._beginning.on_missing == "fail":
                raise TunnelError(
                    f"{self._client.topic}[{number}] was read up to offset {offset} by a worker "
                    "whose table is not here, and retention deleted all records before "
                    f"{bounds.begin}. Give --snapshots a folder that has the table, or "
                    "--on-missing earliest to rebuild it from the remaining records"
                )

    @override
    def _add(self, lanes: Mapping[int, TopicLane]) -> None:
        super()._add(lanes)
        for number, lane in lanes.items():
            self._tables.expect(number, lane.goal, lane.goal)
        self._tell_at_ms = 0.0  # commit at once: until then no worker answers for them

    # Records

    @override
    def _take(self, number: int, lane: TopicLane, records: Records) -> None:
        stretches, refused = read_stretches(self._client.topic, number, records)
        for each in refused:
            _log.warning("%s refused: %s", each.letter.origin, each.letter.reason)
        if refused and self._letters is not None:
            self._letters.put(number, refused)
        behind = records.offsets[-1] + 1
        position = msgspec.structs.replace(lane.done, next=behind)
        self._tables.take(number, stretches, encode_position(position), behind, len(refused))
        lane.done = position
        lane.end = max(lane.end, behind, self._fetcher.end(number))
        self._tables.seen_end(number, lane.end)

    @override
    def _give(self, lane: TopicLane, position: TopicPosition) -> None:
        # record the start, which only the topic knows
        self._tables.take(lane.number, (), encode_position(position), position.next)
        lane.done = position

    @override
    def _look_for_ends(self) -> None:
        # the last offsets may hold no record: transaction markers, or compacted records
        for number, lane in self._lanes.items():
            if lane.done.next < lane.goal and (self._fetcher.position(number) or 0) >= lane.goal:
                lane.goal = 0
                self._tables.expect(number, 0, lane.end)

    # Commits to the group

    @override
    def _tell_lag(self) -> None:
        now_ms = monotonic_ms()
        self._tables.joined(is_member=self._group.is_member)
        self._look_for_progress(now_ms)
        offsets = {number: lane.done.next for number, lane in self._lanes.items()}
        if now_ms < self._tell_at_ms or not offsets:
            return
        self._tell_at_ms = now_ms + self._session_ms / _RENEWALS
        # the broker reassigns the partitions no sooner than one session timeout after its last
        # answer
        until_ms = unstopped_ms() + self._session_ms
        self._group.tell(self._as_told(offsets), partial(self._tables.held_until, until_ms))

    def _look_for_progress(self, now_ms: float) -> None:
        # a process that was suspended made no progress, but is not stuck
        step_ms = self._patience_ms / _LOOKS
        self._idle_ms += min(now_ms - self._seen_ms, step_ms)
        self._seen_ms = now_ms
        done = sum(lane.done.next for lane in self._lanes.values())
        if done != self._done or not self._lanes:
            self._done, self._idle_ms, self._look_ms = done, 0.0, self._patience_ms / 2
        if self._idle_ms < self._look_ms:
            return
        self._look_ms = self._idle_ms + step_ms
        try:
            bounds = self._client.bounds(self._lanes)
        except BrokerUnreachableError:
            self._done = -1  # an unreachable broker is no stall
            return
        behind = [
            number
            for number, each in bounds.items()
            if (self._fetcher.position(number) or self._lanes[number].done.next) < each.end
        ]
        if not behind:
            self._done = -1
        elif self._idle_ms >= self._patience_ms:
            raise CloudStalledError(
                f"no progress for {self._patience_ms / 1000:g} s with records waiting in "
                f"partitions {behind} of {self._client.topic!r}: restart the worker, and it "
                "continues from its tables"
            )
