"""Sends numbered items of lanes as records of a topic: features up, messages down, dead letters.

One thread makes the producer, hands records to it and makes another when it failed; senders
only put items into a queue that is bounded in bytes. A lane's records must never arrive with a
hole (who receives drops what is not newer than the last), so:

- the records of a lane go to one partition of the topic, by one idempotent producer, which has
  one batch of it on the way at a time;
- when a batch fails for good, the producer is halted in the same moment, before it sends
  what follows, and another one begins with the first record that is not acknowledged;
- items become records only when they are handed over, and ``HAND_BYTES`` of items at most: as
  records they are some ten times as large, and a broker may be down for days;
- a record that is too large for the topic becomes a smaller one, where its sender has one, or
  is left out, told in the log and counted; another producer goes on behind it.

A broker that is down is waited for, closing waits a little for what is on its way, an error that
nobody thought of is told to senders, and a producer that does nothing although a broker answers is
replaced: a client library that lost its way would keep records without an end, as no delivery
expires here.
"""

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Event, Thread
from typing import Final

from walle_connectors.kafka.connecting import connect
from walle_connectors.kafka.drivers import open_producer
from walle_connectors.kafka.producing import (
    Handed,
    Outgoing,
    Producer,
    Refusal,
    TopicRecord,
)
from walle_connectors.probe import probe_brokers
from walle_stream.errors import (
    BrokerUnreachableError,
    TopicError,
    TunnelClosedError,
    TunnelError,
    WalleError,
)

_log = logging.getLogger(__name__)

HAND_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of items that the producer has at once."""

STALL_S: Final = 60.0
"""Between two looks whether a producer with records in hand still moves."""

REMIND_EVERY: Final = 30
"""Failures in a row between two lines of the log, some minutes."""

_CLOSE_S: Final = 2.0  # so long closing waits for what is on its way
_AGAIN_S: Final = 0.5  # before another producer, when one failed; doubled by each failure
_AGAIN_MAX_S: Final = 10.0
_DOUBLINGS_MAX: Final = 10

type _Tag[T] = tuple[int, _Item[T], int]  # number of the producer, item, place of the record


class _Item[T]:
    # its records are made when it is handed over; gone when all are acknowledged

    __slots__ = (
        "acknowledged",
        "given",
        "lane",
        "number",
        "partition",
        "pending",
        "session",
        "size_bytes",
        "smaller",
    )

    def __init__(
        self, lane: int, number: int, given: T, size_bytes: int, partition: int | None
    ) -> None:
        self.lane, self.number, self.given, self.size_bytes = lane, number, given, size_bytes
        self.partition = partition
        self.acknowledged: set[int] = set()  # places of records
        self.smaller: dict[int, TopicRecord] = {}  # instead of those that are too large
        self.pending: dict[int, TopicRecord] | None = None  # the others, while handed over
        self.session = 0  # of the producer that has it

    @property
    def is_done(self) -> bool:
        return self.pending is not None and not self.pending


class RecordSender[T](ABC):
    """Base of what has senders on one side and producers, one after the other. Thread-safe.

    ``_condition`` guards everything; senders, callbacks and the thread meet at it.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        purpose: str,
        *,
        max_bytes: int = sys.maxsize,
        connects_early: bool = False,
    ) -> None:
        """Begin to connect, at once or with the first item; a broker that is down is waited for.

        Senders wait while there are more than ``max_bytes`` without acknowledgement.
        """
        self._outgoing = outgoing
        self._purpose = purpose
        self._max_bytes = max_bytes
        self._connects_early = connects_early
        self._condition = Condition()
        self._stopped = Event()
        self._session = 0  # counts producers
        self._failure: WalleError | None = None  # for good: whoever sends is told
        self._answers = 0  # counts acknowledgements
        self._failures = 0  # of producers in a row, until something is acknowledged
        self._lanes: dict[int, deque[_Item[T]]] = {}  # not acknowledged
        self._unsent: deque[_Item[T]] = deque()
        self._acks: dict[int, list[int]] = {}
        self._bytes = 0
        self._in_hand = 0  # bytes of items that the producer has
        self._is_relaxed = False
        self._left: set[int] = set()  # lanes whose next items wait for the next run
        self._producer: Producer | None = None  # the one at hand
        self._is_broken = False  # that one
        self._is_careful = False  # the next one: a batch was too large, find the record
        self.refused_records = 0
        self._thread = Thread(target=self._run, name=purpose.replace(" ", "-"), daemon=True)
        self._thread.start()

    # What is another thing for each

    @abstractmethod
    def _records(self, given: T) -> list[TopicRecord]:
        """Make the records of an item, in their order; run by the thread."""

    @abstractmethod
    def _name(self, record: TopicRecord) -> str:
        """Return how messages call a record."""

    def _smaller(self, given: T, record: TopicRecord) -> TopicRecord | None:  # noqa: ARG002 - for who has one
        """Return what is sent instead of a record that is too large; None to leave it out."""
        return None

    # For senders

    def _queue(
        self, lane: int, number: int, given: T, size_bytes: int, partition: int | None
    ) -> None:
        """Queue an item for a partition, or for that of its records' key; blocks while full.

        Raises:
            TunnelClosedError: It was closed.
            TopicError: The topic has no such partition.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._stopped.is_set()
                    or self._failure is not None
                    or self._is_relaxed
                    or self._has_room(size_bytes)
                )
            )
            self._check()
            if self._stopped.is_set():
                raise TunnelClosedError(
                    f"{self._purpose} is closed: number {number} of partition {lane} stays in the "
                    "outbox"
                )
            if lane in self._left or not self._has_room(size_bytes):
                self._left.add(lane)  # what follows must not arrive before it
                return
            added = _Item(lane, number, given, size_bytes, partition)
            self._bytes += size_bytes
            self._lanes.setdefault(lane, deque()).append(added)
            self._unsent.append(added)
            self._condition.notify_all()

    def relax(self) -> None:
        """Let no sender wait any more, because the run ends.

        An item without room is not sent, nor are those of its lane behind it: they have no
        acknowledgement, so the next run sends them again.
        """
        with self._condition:
            self._is_relaxed = True
            self._condition.notify_all()

    def acks(self, lane: int) -> Iterable[int]:
        """Return numbers acknowledged since the last call, without holes; never blocks.

        Raises:
            TopicError: The topic has no such partition.
            TunnelError: The thread has failed, whatever its reason: a bug.
        """
        with self._condition:
            self._check()
            return self._acks.pop(lane, ())

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the items without acknowledgement."""
        return self._bytes

    def close(self) -> None:
        """Wait a little for what is on its way, then close."""
        with self._condition:
            self._stopped.set()
            self._condition.notify_all()
        self._thread.join()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._bytes or self._bytes + size_bytes <= self._max_bytes

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: WalleError) -> None:
        with self._condition:
            self._failure = error
            self._condition.notify_all()

    # The thread

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - senders must learn of it, whatever it is
            _log.exception("%s failed", self._purpose)
            self._fail(TunnelError(f"{self._purpose} failed: {_said(error)}: see the log"))

    def _work(self) -> None:
        while not self._stopped.is_set():
            with self._condition:
                self._condition.wait_for(lambda: self._is_needed() or self._stopped.is_set())
            producer = connect(self._make_producer, self._stopped, self._purpose)
            if producer is None:
                return
            with self._condition:
                self._session += 1
                self._take_over(producer)
            try:
                self._pump(producer, self._session)
            except BrokerUnreachableError as error:
                self._tell_failure(f"{self._purpose} begins anew", error)
                producer.halt()
            finally:
                producer.close(_CLOSE_S)
            pause_s = _AGAIN_S * 2 ** min(max(self._failures - 1, 0), _DOUBLINGS_MAX)
            self._stopped.wait(min(pause_s, _AGAIN_MAX_S))

    def _is_needed(self) -> bool:
        # most runs have no dead letter: no producer is made for them
        return self._connects_early or any(self._lanes.values())

    def _make_producer(self) -> Producer:
        return open_producer(
            self._outgoing, self._on_ack, self._on_refusal, is_careful=self._is_careful
        )

    def _take_over(self, producer: Producer) -> None:
        self._producer = producer
        self._is_broken = False
        self._in_hand = 0
        self._unsent = deque(
            item for lane in self._lanes.values() for item in lane if not item.is_done
        )
        for item in self._unsent:
            item.pending = None

    def _pump(self, producer: Producer, session: int) -> None:
        while True:
            with self._condition:
                is_there = self._wait_until(
                    lambda: self._may_hand_over() or self._is_broken or self._stopped.is_set()
                )
                if not is_there:
                    self._is_broken = True
                    producer.halt()
                if self._is_broken or not self._may_hand_over():
                    return
                item = self._unsent.popleft()
                item.session = session
                self._in_hand += item.size_bytes
            records = self._records(item.given)
            with self._condition:
                pending = {
                    place: item.smaller.get(place, record)
                    for place, record in enumerate(records)
                    if place not in item.acknowledged
                }
                item.pending = dict(pending)
                self._settle(item.lane)
            for place, record in pending.items():
                if not self._hand_over(producer, session, item, place, record):
                    return

    def _wait_until(self, is_there: Callable[[], object]) -> bool:
        """Wait for something, or the end of it all; under the condition, which is let go meanwhile.

        False where the producer does nothing with what it has, and a broker answered twice.
        """
        seen, has_answered = self._answers, False
        while not self._condition.wait_for(is_there, STALL_S):
            if self._answers != seen or not self._has_in_hand():
                seen, has_answered = self._answers, False
                continue
            # the answer may take seconds: senders and callbacks must not wait for it
            self._condition.release()
            try:
                is_answered = self._is_answered()
            finally:
                self._condition.acquire()
            if has_answered and is_answered and self._answers == seen:
                text = "%s: nothing was acknowledged for %d s, although a broker answers: anew"
                _log.warning(text, self._purpose, 2 * STALL_S)
                return bool(is_there())
            has_answered = is_answered
        return True

    def _is_answered(self) -> bool:
        try:
            probe_brokers(self._outgoing.connection)
        except BrokerUnreachableError:
            return False
        return True

    def _has_in_hand(self) -> bool:
        return self._in_hand > 0

    def _may_hand_over(self) -> bool:
        if not self._unsent:
            return False
        in_hand = self._in_hand
        return not in_hand or in_hand + self._unsent[0].size_bytes <= HAND_BYTES

    def _hand_over(
        self,
        producer: Producer,
        session: int,
        item: _Item[T],
        place: int,
        record: TopicRecord | None,
    ) -> bool:
        # no lock is held: the producer's own are taken here, and ours in its callbacks
        handed = Handed.TOO_LARGE
        while record is not None and handed is Handed.TOO_LARGE:
            try:
                handed = producer.send(record, item.partition, (session, item, place))
            except TopicError as error:
                self._fail(error)
                return False
            if handed is Handed.TOO_LARGE:
                # our own limit: the broker has seen nothing of it
                record = self._refuse(item, place)
        return handed is not Handed.HALTED

    def _tell_failure(self, what: str, error: Exception) -> None:
        """Count a failure, and tell it now and then: what refuses us may do so for days."""
        with self._condition:
            count, self._failures = self._failures, self._failures + 1
        if count % REMIND_EVERY:
            return
        text = _said(error)
        is_forbidden = "AUTHORIZATION" in text.upper()
        advice = (
            ": grant this client WRITE and DESCRIBE on the topic (before Kafka 2.8 also "
            "IDEMPOTENT_WRITE on the cluster)"
            if is_forbidden
            else ""
        )
        _log.warning("%s: %s; sent again%s", what, text, advice)

    # Callbacks, in the producer's thread

    def _on_ack(self, tag: _Tag[T]) -> None:
        _, item, place = tag
        with self._condition:
            self._answers += 1
            self._failures = 0
            item.acknowledged.add(place)
            if item.pending is not None:
                item.pending.pop(place, None)
                if not item.pending:  # nobody waits for a record alone
                    self._settle(item.lane)

    def _on_refusal(self, tag: _Tag[T], refusal: Refusal) -> None:
        session, item, place = tag
        with self._condition:
            if session != self._session or self._is_broken or self._producer is None:
                return  # what a halted producer had not sent
            self._is_broken = True
            self._producer.halt()
            is_its_own = refusal.is_too_large or refusal.is_never_taken
            self._is_careful = is_its_own and not refusal.is_alone
            if is_its_own and refusal.is_alone:
                self._refuse(item, place, refusal)
            self._condition.notify_all()
        if not is_its_own:
            self._tell_failure(f"topic {self._outgoing.name!r} refuses records", refusal.error)

    def _refuse(
        self, item: _Item[T], place: int, refusal: Refusal | None = None
    ) -> TopicRecord | None:
        """Put a smaller record in the place of one that is too large; None: it is left out.

        Without a refusal it is our own limit that the record does not keep.
        """
        with self._condition:
            record = None if item.pending is None else item.pending.get(place)
            if item.pending is None or record is None:
                return None
            is_too_large = refusal is None or refusal.is_too_large
            smaller = self._smaller(item.given, record) if is_too_large else None
            if smaller is not None:
                item.smaller[place] = item.pending[place] = smaller
                return smaller
            del item.pending[place]
            item.acknowledged.add(place)
            self.refused_records += 1
            why = "" if refusal is None or is_too_large else f"is refused: {_said(refusal.error)}"
            why = why or (
                "is too large: raise max.message.bytes of the topic and "
                f"{self._outgoing.bytes_key} ({self._outgoing.topic.max_bytes})"
            )
            text = "%s is not sent to topic %r: a record of %d bytes %s"
            named = self._name(record)
            _log.error(text, named, self._outgoing.name, len(record.value), why)
            self._settle(item.lane)
            return None

    def _settle(self, lane: int) -> None:
        # acknowledged up to the first item that is not: contiguous
        items = self._lanes[lane]
        while items and items[0].is_done:
            item = items.popleft()
            if item.session == self._session:
                self._in_hand -= item.size_bytes
            self._bytes -= item.size_bytes
            self._acks.setdefault(lane, []).append(item.number)
        self._condition.notify_all()


def _said(error: Exception) -> str:
    # an error's text with its name, which libraries' own texts often lack
    text = str(error)
    name = type(error).__name__
    return text if name in text else f"{name}: {text}"
