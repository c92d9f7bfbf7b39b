"""A consumer group through librdkafka.

One consumer is the member and fetches nothing. Another consumer, without a group, fetches the
partitions that the reader has opened. So a partition is not fetched before it is opened, and a
recreated topic costs no membership.

librdkafka joins in threads of its own and calls back within a poll. In the callback the reader
gives partitions back before the group learns that they are free. A stand-in's poll waits in the
callback for the reader. It does not wait for messages, so librdkafka keeps counting the poll
interval. During a poll confluent-kafka lets no other thread use the consumer.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from walle_connectors.kafka.librdkafka import is_waited_for, open_client
from walle_connectors.kafka.source.confluent import ConfluentFetcher
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.group import STAND_IN_SHARE, GiveBack, Told
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.polling import PollThread
from walle_stream.errors import BrokerUnreachableError, SourceError

_WAIT_MS: Final = 5
# the callback or the fetcher reports these
_SAID_ELSEWHERE: Final = {"_MAX_POLL_EXCEEDED", "UNKNOWN_TOPIC_OR_PART"}
_NOT_NOW: Final = {
    *("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST"),
}


class ConfluentGroup:
    """confluent-kafka's consumer as a ``Group``."""

    def __init__(self, model: KafkaSourceModel, *, has_headers: bool) -> None:
        """Create the consumers, which connect in their own threads."""
        self.fetcher = ConfluentFetcher(model, has_headers=has_headers)
        self.owned: set[int] = set()
        self._topic = model.topic
        self._member: str | None = ""
        self._is_away = self._is_closed = False
        self._asked: tuple[frozenset[int], bool] | None = None
        self._is_wanted, self._is_back = Event(), Event()
        self._untold: list[Mapping[int, Told]] = []
        self._telling: deque[Callable[[], None] | None] = deque()
        session_ms = model.session_timeout_ms
        self._consumer: Any = open_client(
            Consumer,
            model,
            {
                "group.id": model.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": min(3_000, session_ms // 3),
                # the library accepts no interval shorter than the session timeout
                "max.poll.interval.ms": max(model.poll_interval_ms, session_ms),
                "enable.auto.commit": False,
                "on_commit": self._take_answer,
            },
        )
        self._polls = PollThread(
            partial(self.fetcher.poll, 0),
            f"kafka-poll-{model.topic}",
            self._stay,
            model.poll_interval_ms * STAND_IN_SHARE / 1000.0,
        )

    @property
    def is_member(self) -> bool:
        """Whether this consumer is in the group; see ``Group.is_member``."""
        return bool(self._member) and self._consumer.memberid() == self._member

    def join(self, give_back: GiveBack) -> None:
        """Start joining; see ``Group.join``."""
        self._give_back = give_back
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._take_places,
            on_revoke=partial(self._let_go, is_lost=False),
            on_lost=partial(self._let_go, is_lost=True),
        )

    def take(self, wait_s: float) -> bool:
        """Take the group for a turn; see ``Group.take``."""
        self._is_wanted.set()
        if self._polls.take(wait_s):
            return True
        if self._asked is not None:
            numbers, is_lost = self._asked
            try:
                self._give_back(numbers, is_lost=is_lost)
            finally:
                self._asked = None
                self._is_back.set()
        return False

    def give(self) -> None:
        """End the reader's turn; see ``Group.give``."""
        self._polls.give()

    def poll(self, most: int) -> Polled | None:
        """Return records; see ``Group.poll``."""
        self._serve()
        return self.fetcher.poll(_WAIT_MS, most)

    def _serve(self) -> None:
        try:
            message = self._consumer.poll(0)
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        said = None if message is None else message.error()
        if said is not None and said.name() not in _SAID_ELSEWHERE and not is_waited_for(said):
            raise self._failure(said)

    def _stay(self) -> None:
        self._is_wanted.clear()
        self._is_away = True
        try:
            self._serve()
        finally:
            self._is_away = False

    # Assignments and revocations: callbacks within a poll

    def _take_places(self, _consumer: Any, places: Collection[Any]) -> None:
        self._member = self._consumer.memberid()
        self.owned |= {place.partition for place in places}
        self._consumer.incremental_assign([])

    def _let_go(self, _consumer: Any, places: Collection[Any], *, is_lost: bool) -> None:
        try:
            if self._is_away:
                self._is_wanted.wait()
            is_lost = is_lost or not self.is_member
            gone = frozenset(self.owned if is_lost else (place.partition for place in places))
            self.owned -= gone
            if self._is_away:
                self._await_reader(gone, is_lost)
            else:
                self._give_back(gone, is_lost=is_lost)
        finally:
            self._consumer.incremental_unassign([])

    def _await_reader(self, gone: frozenset[int], is_lost: bool) -> None:
        self._is_back.clear()
        self._asked = gone, is_lost
        if not self._is_closed:
            self._is_back.wait()
        self._asked = None
        while self._untold:
            self.tell(self._untold.pop())

    def leave(self, *, gives_back: bool) -> None:
        """Leave the group; see ``Group.leave``."""
        try:
            while gives_back and not self.take(_WAIT_MS / 1000.0):
                pass  # the stand-in is about to end, or waits for this thread
            if gives_back:
                owned, self.owned = self.owned, set()
                self._give_back(owned, is_lost=not self.is_member)
                self.give()
        finally:
            self._is_closed = True
            self._is_wanted.set()
            self._is_back.set()
            self._polls.stop()
            self.fetcher.close()
            with suppress(RuntimeError):
                self._consumer.close()

    # Commits

    def claim(self, told: Mapping[int, Told]) -> bool:
        """Commit and wait; see ``Group.claim``."""
        try:
            taken = self._consumer.commit(offsets=self._offsets(told), asynchronous=False)
            errors = [each.error for each in taken if each.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        for each in errors:
            if each.name() not in _NOT_NOW and not is_waited_for(each):
                raise self._failure(each)
        return not errors

    def tell(self, told: Mapping[int, Told], on_taken: Callable[[], None] | None = None) -> None:
        """Commit without waiting; see ``Group.tell``."""
        # answers do not name their commit, so only one commit with a callback runs at a time
        if on_taken is not None and any(self._telling):
            return
        if self._asked is not None:
            self._untold.append(told)  # within a stand-in's poll
            return
        with suppress(KafkaException):  # no state depends on this commit
            self._consumer.commit(offsets=self._offsets(told), asynchronous=True)
            self._telling.append(on_taken)

    def _take_answer(self, error: Any, places: Collection[Any]) -> None:
        on_taken = self._telling.popleft() if self._telling else None
        if on_taken is not None and error is None and all(each.error is None for each in places):
            on_taken()

    def _offsets(self, told: Mapping[int, Told]) -> list[Any]:
        return [
            TopicPartition(self._topic, number, each.offset, each.metadata)
            for number, each in told.items()
        ]

    def _failure(self, error: Any) -> SourceError | BrokerUnreachableError:
        said = (
            f"topic {self._topic!r}: a request to the group failed ({error.name()}: {error.str()})"
        )
        if is_waited_for(error):
            return BrokerUnreachableError(
                f"{said}: make sure that its brokers answer, and run again"
            )
        return SourceError(
            f"{said}: committed data are kept; grant READ and DESCRIBE on topic and group to this "
            "client, or run again"
        )
