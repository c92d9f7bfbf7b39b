"""Reader of the partitions that a consumer group assigns to this host.

The group uses the cooperative-sticky assignor. Reading of a partition that stays continues through
a rebalance. A partition that moves has no new owner before its old owner has given it back.
``group`` hides the differences between the libraries.

A host that waits for room in the tunnel reads nothing, maybe for days. It must not lose its
partitions for that: they would move to a host that waits as well. So it stays a member until the
group asks for some of its partitions.

Offsets come from the placement. The offsets committed to Kafka serve tools that show lag. Their
metadata hold the generation of the owner and its incarnation, which members with another data
directory need.
"""

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Final, override

from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.group import Group, Told
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.reader import KafkaReader
from walle_connectors.kafka.source.records import RecordDecoder
from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    BrokerUnreachableError,
    SourceError,
    SourceMovedError,
    WalleError,
)
from walle_stream.ports import Placement, SourceBatch
from walle_stream.reading import Opening

_log = logging.getLogger(__name__)

REVOKE_SHARE: Final = 0.2
"""Share of the poll interval within which partitions must be given back."""

_WAIT_S: Final = 0.005
_TELL_LAG_MS: Final = 5_000.0
_ALONE_MS: Final = 10_000.0  # limit of a bounded run's wait for partitions
_SETTLE_MS: Final = 10_000.0  # limit of a bounded run's wait for replies at its end


class GroupReader(KafkaReader):
    """A reader that is a member of a consumer group. For one thread, which calls the placement."""

    def __init__(
        self,
        client: TopicClient,
        group: Group,
        model: KafkaSourceModel,
        decoder: RecordDecoder,
        placement: Placement,
        opening: Opening,
    ) -> None:
        """Join the group and own client and group; the first reads bring partitions.

        ``opening`` has no partitions. Its limit applies to this member in this run.
        """
        super().__init__(client, model, decoder, opening, group.fetcher)
        self._group = group
        self._placement = placement
        self._stops_at_end = model.stop_at_end
        self._revoke_ms = model.poll_interval_ms * REVOKE_SHARE
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._generations: dict[int, int] = {}
        self._last_generation = 0  # highest generation seen in a partition's state
        self._told: Mapping[int, int] = {}
        self._tell_at_ms = monotonic_ms() + _TELL_LAG_MS
        self._alone_since_ms = 0.0
        self._leave_at_ms = 0.0
        self._progress = -1.0
        try:
            group.join(self._give_back)
        except BaseException:
            group.leave(gives_back=False)
            raise

    @override
    def read(self) -> Sequence[SourceBatch]:
        """Return new batches, or wait some milliseconds for them; opens and closes partitions.

        Raises:
            SourceError: Reading of the topic failed, now or in an earlier read.
            WalleError: A partition cannot be opened or closed.
        """
        self._thread = threading.current_thread()
        if self._failure is not None:
            raise SourceError(
                f"topic {self._client.topic!r}: the group was left after an error "
                f"({self._failure}): run again"
            ) from self._failure
        try:
            if not self._group.take(_WAIT_S):
                return ()  # a stand-in is polling
            try:
                return super().read()
            finally:
                self._group.give()
        except BaseException as error:
            if self._is_closed and not self._is_done:
                return ()  # another thread left the group meanwhile
            self._failure = error
            raise

    @override
    @property
    def progress(self) -> float:
        """Share of the records present at the opening that are read; -1 without partitions."""
        return self._progress if self._progress >= 0 else super().progress

    @override
    def close(self) -> None:
        """Give this host's partitions back, then leave the group; may be called twice.

        From any thread but the reading one it only leaves the group; the host then closes its
        partitions itself.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._group.leave(gives_back=self._thread in {None, threading.current_thread()})
        finally:
            self._lanes.clear()
            self._client.close()

    def _give_back(self, numbers: Collection[int], *, is_lost: bool) -> None:
        gone = {n: self._lanes.pop(n).done.next for n in sorted(numbers) if n in self._lanes}
        if not gone:
            return
        for number in gone:
            self._fetcher.pause(number)
        if is_lost or self._failure is not None:
            self._placement.lose(list(gone))
        else:
            self._placement.revoke(list(gone), monotonic_ms() + self._revoke_ms)
            self._group.tell(self._as_told(gone))

    @override
    def _poll(self, most: int) -> Polled | None:
        found = self._group.poll(most)
        if found is not None:
            self._arrived_ms = found.arrived_ms or monotonic_ms()
            self._open_new()
            self._tell_lag()
        return found

    @override
    def _finish(self) -> None:
        # the host must first commit the last batches and take the replies to their runs' calls;
        # after a time limit the next run takes the replies
        if self._ready:
            self._leave_at_ms = monotonic_ms() + _SETTLE_MS
        elif (
            self._row >= self._last_row
            or self._placement.settle()
            or monotonic_ms() >= self._leave_at_ms
        ):
            self._leave()

    def _leave(self) -> None:
        # leave now and not at closing: a member that no longer polls would block the others
        self._progress = max(super().progress, 0.0)
        self._is_done = True
        self.close()

    # Partitions

    def _open_new(self) -> None:
        numbers = sorted(set(self._group.owned) - self._lanes.keys())
        if not numbers:
            return
        if numbers[-1] >= self._client.identity.partition_count:
            raise self._client.grown()
        self._leave_at_ms = monotonic_ms() + _SETTLE_MS  # these partitions may have ended before
        told = self._claimed(numbers)
        if told is None:
            return  # try again after the next poll, if this host still owns them
        generation = told[numbers[0]].generation
        self._generations |= dict.fromkeys(numbers, generation)
        try:
            offsets = self._placement.assign(numbers, generation)
            self._expect_own({n: told[n] for n in numbers if n not in offsets})
            self._add(self._bring(numbers, offsets))
        except (BrokerUnreachableError, SourceMovedError) as error:
            _log.warning("partitions %s wait: %s", numbers, error)
            if isinstance(error, SourceMovedError):
                self._last_generation = error.generation
            self._placement.lose(numbers)
        except WalleError:
            self._placement.lose(numbers)  # they were opened, but nothing was read
            raise

    def _claimed(self, numbers: Collection[int]) -> Mapping[int, Told] | None:
        """Commit the next generation, which only a member can do; None if that failed for now."""
        try:
            before = self._client.told(numbers)
            last = max(self._last_generation, *(each.generation for each in before.values()))
            told = {n: each._replace(generation=last + 1) for n, each in before.items()}
            for number, each in told.items():
                if not each.owner and not each.offset:
                    # the group must know the owner before the first record is read
                    told[number] = each._replace(owner=self._placement.incarnation)
            return told if self._group.claim(told) else None
        except BrokerUnreachableError as error:
            _log.warning("partitions %s wait: %s", list(numbers), error)
            return None

    def _expect_own(self, told: Mapping[int, Told]) -> None:
        # a member with another data directory would produce all features again, under another
        # incarnation
        for number, each in told.items():
            is_own = each.owner == self._placement.incarnation
            if not is_own and not self._placement.may_begin_anew:
                raise SourceError(
                    f"topic {self._client.topic!r}: partition {number} was read up to offset "
                    f"{each.offset} by another member of this group, and its state is not here. "
                    "Share the data directory, set spec.state.snapshots, or start over with "
                    "another group"
                )

    @override
    @property
    def _is_at_end(self) -> bool:
        if not self._stops_at_end or not self._group.is_member:
            return False
        if self._lanes:
            self._alone_since_ms = 0.0
            return super()._is_at_end
        # other members may be about to give some of their partitions
        self._alone_since_ms = self._alone_since_ms or monotonic_ms()
        return monotonic_ms() - self._alone_since_ms > _ALONE_MS

    # Lag for tools

    def _tell_lag(self) -> None:
        if monotonic_ms() < self._tell_at_ms:
            return
        self._tell_at_ms = monotonic_ms() + _TELL_LAG_MS
        now = {number: lane.done.next for number, lane in self._lanes.items()}
        news = {number: at for number, at in now.items() if self._told.get(number) != at}
        self._told = now
        if news:
            self._group.tell(self._as_told(news))

    def _as_told(self, offsets: Mapping[int, int]) -> dict[int, Told]:
        owner = self._placement.incarnation
        return {n: Told(at, self._generations[n], owner) for n, at in offsets.items()}
