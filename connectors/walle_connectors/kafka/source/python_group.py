"""A consumer group through kafka-python.

The library calls its listener in its I/O thread, which must not block. So the listener only pauses
new partitions and ends the poll, for which an exception is the only way. This member joins again in
the next poll. Before that poll the reader gives partitions back.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition, errors
from walle_connectors.kafka.python_errors import source_errors
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.group import STAND_IN_SHARE, GiveBack, Told
from walle_connectors.kafka.source.polling import POLL_MS, PollThread
from walle_connectors.kafka.source.python_fetcher import PythonFetcher
from walle_stream.clock import monotonic_ms

_WAIT_S: Final = 0.005
_ASK_MS: Final = 10_000


class PythonGroup:
    """kafka-python's consumer as a ``Group``; its client closes it."""

    def __init__(
        self, client: TopicClient, consumer: Any, poll_interval_ms: int, *, has_headers: bool
    ) -> None:
        """Use a client that was opened for a member."""
        self.fetcher = PythonFetcher(client, consumer, has_headers=has_headers)
        self.owned: Collection[int] = frozenset()
        self._client, self._consumer = client, consumer
        self._moved = threading.Event()
        self._is_asked_back = threading.Event()
        self._is_lost = self._is_closed = False
        self._member = ""
        logging.getLogger("kafka.coordinator.consumer").addFilter(_is_no_move)
        self._polls = PollThread(
            self._poll,
            f"kafka-poll-{client.topic}",
            self._stay,
            poll_interval_ms * STAND_IN_SHARE / 1000.0,
        )

    @property
    def is_member(self) -> bool:
        """Whether this consumer is in the group; see ``Group.is_member``."""
        return bool(self._consumer.group_metadata().generation_id >= 0)

    def join(self, give_back: GiveBack) -> None:
        """Start joining; see ``Group.join``."""
        self._give_back = give_back
        with source_errors(self._client.topic):
            self._consumer.subscribe([self._client.topic], listener=_listener(self))

    def take(self, wait_s: float) -> bool:
        """Take the group for a turn; see ``Group.take``."""
        return self._polls.take(wait_s)

    def give(self) -> None:
        """End the reader's turn; see ``Group.give``."""
        self._polls.give()

    def poll(self, most: int) -> Polled | None:
        """Return records; see ``Group.poll``."""
        if self._is_asked_back.is_set() and not self._polls.is_busy:
            # set while the reader was away: another poll would join before partitions are given
            # back
            self._follow()
            return Polled()
        found = self._polls.poll(most, _WAIT_S)
        if found is not None:
            self._follow()
        return found

    def _poll(self, most: int) -> Polled:
        return self.fetcher.poll(POLL_MS, most)._replace(arrived_ms=monotonic_ms())

    def _stay(self) -> None:
        if self._is_closed or self._is_asked_back.is_set():
            return
        # seek instead of pausing: the library may lose records that it holds of a paused partition
        for number, records in self.fetcher.poll(POLL_MS, 1).records.items():
            # the reader is away, so read them again later
            self.fetcher.seek(number, records.offsets[0])

    # Assignments and revocations

    def hold(self, places: Sequence[Any]) -> None:
        """Pause new partitions; called in the consumer's I/O thread.

        Raises:
            InterruptedError: See ``let_go``.
        """
        for place in places:
            self.fetcher.pause(place.partition)
            # any offset will do: without one the consumer would look for it itself
            self._consumer.seek(place, 0)
        self._end_poll()

    def let_go(self, *, is_lost: bool) -> None:
        """Note the revocation of partitions; called in the consumer's I/O thread.

        If ``is_lost``, another member may own them already.

        Raises:
            InterruptedError: Always, except while leaving the group; it ends the poll.
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
        is_out = bool(self.owned) and group.member_id != self._member
        if not is_out and not self._moved.is_set():
            return
        self._moved.clear()
        self._is_asked_back.clear()
        is_lost, self._is_lost = self._is_lost or is_out, False
        given = frozenset(place.partition for place in self._consumer.assignment())
        gone = frozenset(self.owned) if is_lost else frozenset(self.owned) - given
        self.owned = frozenset(self.owned) - gone
        self._give_back(gone, is_lost=is_lost)
        if group.generation_id >= 0:  # otherwise this member is joining again
            self._member, self.owned = group.member_id, given

    def leave(self, *, gives_back: bool) -> None:
        """Leave the group; see ``Group.leave``."""
        self._is_closed = True
        self._polls.stop()
        owned, self.owned = self.owned, frozenset()
        try:
            if gives_back:
                is_out = self._consumer.group_metadata().member_id != self._member
                self._give_back(owned, is_lost=self._is_lost or is_out)
        finally:
            self._client.close()

    # Commits

    def claim(self, told: Mapping[int, Told]) -> bool:
        """Commit and wait; see ``Group.claim``."""
        with source_errors(self._client.topic):
            try:
                self._consumer.commit(self._offsets(told), timeout_ms=_ASK_MS)
            except (
                errors.CommitFailedError,
                errors.RebalanceInProgressError,
                errors.RetriableError,
            ):
                return False  # a rebalance is running, or a broker is down
        return True

    def tell(self, told: Mapping[int, Told], on_taken: Callable[[], None] | None = None) -> None:
        """Commit without waiting; see ``Group.tell``."""

        def on_answer(_offsets: Any, answer: Any) -> None:
            if on_taken is not None and not isinstance(answer, BaseException):
                on_taken()

        with suppress(Exception):  # no state depends on this commit
            self._consumer.commit_async(self._offsets(told), callback=on_answer)

    def _offsets(self, told: Mapping[int, Told]) -> dict[Any, Any]:
        # confluent-kafka reads up to a NUL, even past the end of the metadata
        return {
            TopicPartition(self._client.topic, number): OffsetAndMetadata(
                each.offset, f"{each.metadata}\0", -1
            )
            for number, each in told.items()
        }


def _listener(group: PythonGroup) -> Any:
    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            group.hold(list(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            del revoked
            group.let_go(is_lost=False)

        def on_partitions_lost(self, lost: Any) -> None:
            del lost
            group.let_go(is_lost=True)

    return Listener()


def _is_no_move(record: logging.LogRecord) -> bool:
    # hides the library's log of the exception by which our listener ends a poll
    return not (record.exc_info and isinstance(record.exc_info[1], InterruptedError))
