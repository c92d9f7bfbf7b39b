"""Reads the partitions that a consumer group gives to this host.

The group decides by the cooperative-sticky assignor: a partition that stays is read on
through a rebalance, and one that goes is given to nobody before its owner has joined once
more. kafka-python calls its listener on the thread of its I/O, where nothing may block,
while ``Placement`` wants the thread of ``read``. So the listener only keeps new partitions
from being read and, where some go, ends the poll: an exception is the one way, and the
next poll is where the host joins again. Between the two ``read`` compares what it has with
what the consumer has, gives back, and opens.

A host that waits for room in the tunnel reads nothing, maybe for days, and must not lose its
partitions for it: they would move to a host that waits as well. So the thread of the polls
goes on polling, and seeks back to what it got. It gives nothing back on behalf of its host:
once the group asks for partitions it polls no more, and the poll interval decides.

Offsets come from the placement. Those committed to Kafka are for tools that show lag, and
name the data directory where the state is, for members that have another one.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, override

from walle_connectors.kafka.source.client import TopicClient, source_errors
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.polling import POLL_MS, PollThread
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
"""Share of the poll interval in which partitions must have been given back."""

STAND_IN_SHARE: Final = 1 / 3
"""Share of the poll interval without a read after which polls go on by themselves."""

_WAIT_S: Final = 0.005
_TELL_LAG_MS: Final = 5_000.0
_ALONE_MS: Final = 10_000.0  # so long a bounded run waits for partitions
_SETTLE_MS: Final = 10_000.0  # so long it waits for replies at its end
_LAST_TELL_MS: Final = 1_000
_ASK_MS: Final = 10_000


class GroupReader(KafkaReader):
    """A member of a consumer group. One thread, which calls the placement, too."""

    def __init__(
        self,
        client: TopicClient,
        model: KafkaSourceModel,
        decoder: RecordDecoder,
        placement: Placement,
        opening: Opening,
    ) -> None:
        """Subscribe, taking the client; partitions come with the first reads.

        The opening has no partitions; its limit is of this member in this run.
        """
        super().__init__(client, model, decoder, opening)
        self._consumer = client.consumer
        self._placement = placement
        self._stops_at_end = model.stop_at_end
        self._revoke_ms = model.poll_interval_ms * REVOKE_SHARE
        self._moved = threading.Event()
        self._is_asked_back = threading.Event()
        self._member = ""
        self._is_lost = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._told: dict[int, int] = {}
        self._tell_at_ms = monotonic_ms() + _TELL_LAG_MS
        self._alone_since_ms = 0.0
        self._leave_at_ms = 0.0
        self._progress = -1.0
        logging.getLogger("kafka.coordinator.consumer").addFilter(_is_no_move)
        with source_errors(model.topic):
            self._consumer.subscribe([model.topic], listener=_listener(self))
        self._polls = PollThread(
            self._poll_beside,
            f"kafka-poll-{model.topic}",
            self._stay,
            model.poll_interval_ms * STAND_IN_SHARE / 1000.0,
        )

    @override
    def read(self) -> Sequence[SourceBatch]:
        """Return what has come, or wait for some milliseconds; opens and closes partitions.

        Raises:
            SourceError: The topic cannot be read on, or a read before this one failed.
            WalleError: A partition cannot be opened or closed.
        """
        self._thread = threading.current_thread()
        if self._failure is not None:
            raise SourceError(
                f"topic {self._client.topic!r}: the group was left after an error "
                f"({self._failure}): run again"
            ) from self._failure
        if not self._polls.take(_WAIT_S):
            return ()  # it was away for long
        try:
            batches = super().read()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._polls.give()
        return batches

    @override
    @property
    def progress(self) -> float:
        """Share read of what its partitions had when they were opened; -1 without any."""
        return self._progress if self._progress >= 0 else super().progress

    @override
    def close(self) -> None:
        """Give back what this host has, then leave the group; may be called twice.

        From another thread than the reads' it only leaves the group: partitions are then
        their host's to close.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._polls.stop()
        try:
            if self._thread in {None, threading.current_thread()}:
                self._give_back()
        finally:
            self._lanes.clear()
            self._client.close()

    def _give_back(self) -> None:
        given = {number: lane.done.next for number, lane in self._lanes.items()}
        self._lanes.clear()
        if not given:
            return
        is_member = self._consumer.group_metadata().member_id == self._member
        if self._failure is None and is_member and not self._is_lost:
            self._placement.revoke(list(given), monotonic_ms() + self._revoke_ms)
            self._tell_last_lag(given)
        else:
            self._placement.lose(list(given))

    @override
    def _poll(self, most: int) -> Polled | None:
        if self._is_asked_back.is_set() and not self._polls.is_busy:
            # while nobody read: another poll would join without having given back
            self._follow()
            return Polled()
        found = self._polls.poll(most, _WAIT_S)
        if found is not None:
            self._follow()
            self._tell_lag()
        return found

    def _poll_beside(self, most: int) -> Polled:
        return self._poll_fetcher(POLL_MS, most)

    def _stay(self) -> None:
        """Remain a member while nobody reads; run by the thread of the polls."""
        if self._is_done or self._is_closed or self._is_asked_back.is_set():
            return
        # not paused: the library may not give back what it has in hand of a paused partition
        for number, records in self._poll_beside(1).records.items():
            # nobody is there to take them
            self._fetcher.seek(number, records.offsets[0])

    @override
    def _finish(self) -> None:
        # what was told now is its owner's to commit before partitions are given back, and the
        # replies to what its runs then ask; after a limit the next run takes them
        if self._ready:
            self._leave_at_ms = monotonic_ms() + _SETTLE_MS
        elif (
            self._row >= self._last_row
            or self._placement.settle()
            or monotonic_ms() >= self._leave_at_ms
        ):
            self._leave()

    def _leave(self) -> None:
        # at once, not when it is closed: a member that no longer polls would hold up the others
        self._progress = max(super().progress, 0.0)
        self._is_done = True
        self._give_back()
        with source_errors(self._client.topic):
            self._consumer.unsubscribe()

    # What the group gives and takes

    def hold(self, places: Sequence[Any]) -> None:
        """Let nothing be read of new partitions yet; run by the consumer's I/O thread.

        Raises:
            InterruptedError: See ``let_go``.
        """
        for place in places:
            self._fetcher.pause(place.partition)
            # any: without one the consumer would look for an offset itself
            self._consumer.seek(place, 0)
        self._end_poll()

    def let_go(self, *, is_lost: bool) -> None:
        """Take note that partitions went; run by the consumer's I/O thread.

        Where ``is_lost``, somebody else may have them already.

        Raises:
            InterruptedError: Always, but for when the reader closes; it ends the poll.
        """
        self._is_lost = self._is_lost or is_lost
        self._is_asked_back.set()
        self._end_poll()

    def _end_poll(self) -> None:
        self._moved.set()
        if not self._is_closed:
            raise InterruptedError("partitions moved")

    def _follow(self) -> None:
        group = self._consumer.group_metadata()
        has_left = bool(self._lanes) and group.member_id != self._member
        if not has_left and not self._moved.is_set():
            return
        self._moved.clear()
        self._is_asked_back.clear()
        is_lost, self._is_lost = self._is_lost or has_left, False
        owned = {place.partition for place in self._consumer.assignment()}
        gone = [number for number in self._lanes if is_lost or number not in owned]
        for number in gone:
            del self._lanes[number]
        if gone and is_lost:
            self._placement.lose(gone)
        elif gone:
            self._placement.revoke(gone, monotonic_ms() + self._revoke_ms)
        if group.generation_id < 0:
            return  # on the way back into the group
        self._member = group.member_id
        self._open(sorted(owned - self._lanes.keys()), group.generation_id)

    def _open(self, numbers: Sequence[int], generation: int) -> None:
        if not numbers:
            return
        if numbers[-1] >= self._client.identity.partition_count:
            raise self._client.grown()
        self._leave_at_ms = monotonic_ms() + _SETTLE_MS  # they may have ended before
        try:
            offsets = self._assigned(numbers, generation)
            if offsets is not None and self._claim(sorted(set(numbers) - offsets.keys())):
                self._add(self._bring(numbers, offsets))
                return
        except BrokerUnreachableError as error:
            _log.warning("partitions %s wait: %s", list(numbers), error)
        except WalleError:
            self._placement.lose(numbers)  # they were opened, and nothing was taken
            raise
        self._placement.lose(numbers)
        self._moved.set()  # once more behind the next poll, if they still are this host's

    def _assigned(self, numbers: Sequence[int], generation: int) -> Mapping[int, bytes] | None:
        try:
            return self._placement.assign(numbers, generation)
        except SourceMovedError as moved:
            self._placement.lose(numbers)  # those before it
            if not self._is_member(numbers):
                _log.info("%s: it was put out", moved)
                return None
            _log.warning("%s: the group was made anew", moved)
        return self._placement.assign(numbers, generation, is_anew=True)

    def _claim(self, numbers: Sequence[int]) -> bool:
        # the group must know whose they are before a record is read: who got them with another
        # data directory would make everything once more, as another's. False: not now
        if self._placement.may_begin_anew:
            return True
        news = {}
        for number in numbers:
            with source_errors(self._client.topic):
                told = self._consumer.committed(
                    self._client.place(number), metadata=True, timeout_ms=_ASK_MS
                )
            if told is None or not (told.offset or told.metadata):
                news[number] = 0
            elif told.metadata != self._placement.incarnation:
                raise SourceError(
                    f"topic {self._client.topic!r}: partition {number} was read up to offset "
                    f"{told.offset} by another member of this group, and its state is not here: "
                    "share the data directory, set spec.state.snapshots, or begin anew with "
                    "another group"
                )
        return not news or self._is_told_now(news)

    def _is_member(self, numbers: Sequence[int]) -> bool:
        # by what the group takes from members of its generation alone: offsets, as they are
        with source_errors(self._client.topic):
            told = {
                number: self._consumer.committed(self._client.place(number), timeout_ms=_ASK_MS)
                for number in numbers
            }
        return self._is_told_now({number: offset or 0 for number, offset in told.items()})

    def _is_told_now(self, offsets: Mapping[int, int]) -> bool:
        from kafka import errors  # noqa: PLC0415 - an extra

        with source_errors(self._client.topic):
            try:
                self._consumer.commit(self._as_committed(offsets), timeout_ms=_ASK_MS)
            except (
                errors.CommitFailedError,
                errors.RebalanceInProgressError,
                errors.RetriableError,
            ):
                return False  # the group is moving, or a broker is away
        return True

    @override
    @property
    def _is_at_end(self) -> bool:
        if not self._stops_at_end or self._consumer.group_metadata().generation_id < 0:
            return False
        if self._lanes:
            self._alone_since_ms = 0.0
            return super()._is_at_end
        # others may be about to give some of theirs
        self._alone_since_ms = self._alone_since_ms or monotonic_ms()
        return monotonic_ms() - self._alone_since_ms > _ALONE_MS

    # For tools that show lag

    def _tell_lag(self) -> None:
        if monotonic_ms() < self._tell_at_ms:
            return
        self._tell_at_ms = monotonic_ms() + _TELL_LAG_MS
        now = {number: lane.done.next for number, lane in self._lanes.items()}
        news = {number: at for number, at in now.items() if self._told.get(number) != at}
        self._told = now
        if news:
            with suppress(Exception):  # whatever it is, nothing depends on it
                self._consumer.commit_async(self._as_committed(news))

    def _tell_last_lag(self, news: Mapping[int, int]) -> None:
        with suppress(Exception):  # same
            self._consumer.commit(self._as_committed(news), timeout_ms=_LAST_TELL_MS)

    def _as_committed(self, offsets: Mapping[int, int]) -> dict[Any, Any]:
        from kafka import OffsetAndMetadata  # noqa: PLC0415 - an extra

        return {
            self._client.place(number): OffsetAndMetadata(at, self._placement.incarnation, -1)
            for number, at in offsets.items()
        }


def _listener(reader: GroupReader) -> Any:
    from kafka import ConsumerRebalanceListener  # noqa: PLC0415 - an extra

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            reader.hold(list(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            del revoked
            reader.let_go(is_lost=False)

        def on_partitions_lost(self, lost: Any) -> None:
            del lost
            reader.let_go(is_lost=True)

    return Listener()


def _is_no_move(record: logging.LogRecord) -> bool:
    # the library logs what a listener raises, which is how ours ends a poll
    return not (record.exc_info and isinstance(record.exc_info[1], InterruptedError))
