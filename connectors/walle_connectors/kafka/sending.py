"""Sending of numbered items in lanes as records of a topic: features, messages, dead letters.

One thread makes the producer, hands records to it and replaces it after a failure. Senders only
put items into a queue with a limit in bytes. A lane's records must never arrive with a gap, since
a receiver drops every record that is not newer than the last. So these rules hold:

- The records of a lane go to one partition of the topic. One idempotent producer sends them, one
  batch at a time.
- When a batch fails for good, the producer is halted at once, before it sends later records. The
  next producer starts with the first unacknowledged record.
- Items become records only at the hand-over, and at most ``HAND_BYTES`` of items are handed over.
  Records are some ten times as large as items, and a broker may be down for days.
- A record that is too large for the topic is replaced by a smaller record of its sender. Without
  one it is left out, logged and counted. Another producer continues after it.

The thread waits for a broker that is down. Closing waits a little for records in flight. An
unexpected error is passed to senders. A producer without progress is replaced when a broker
answers: a stuck client library would keep records for ever, since no delivery expires here.
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
"""Largest size of the items in the producer's hands, in bytes."""

STALL_S: Final = 60.0
"""Seconds between two checks of the progress of a producer with records in hand."""

REMIND_EVERY: Final = 30
"""Number of failures in a row between two log lines, which is some minutes."""

_CLOSE_S: Final = 2.0  # longest wait for records in flight when closing
_AGAIN_S: Final = 0.5  # pause before the next producer; each failure doubles it
_AGAIN_MAX_S: Final = 10.0
_DOUBLINGS_MAX: Final = 10

type _Tag[T] = tuple[int, _Item[T], int]  # number of the producer, item, index of the record


class _Item[T]:
    # its records are made at the hand-over; it is removed when all are acknowledged

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
        self.acknowledged: set[int] = set()  # indexes of records
        self.smaller: dict[int, TopicRecord] = {}  # instead of records that are too large
        self.pending: dict[int, TopicRecord] | None = None  # unacknowledged, once handed over
        self.session = 0  # number of the producer that has it

    @property
    def is_done(self) -> bool:
        return self.pending is not None and not self.pending


class RecordSender[T](ABC):
    """Base class: a queue between senders and successive producers. Thread-safe.

    ``_condition`` guards all state for senders, callbacks and the thread.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        purpose: str,
        *,
        max_bytes: int = sys.maxsize,
        connects_early: bool = False,
    ) -> None:
        """Start connecting, at once or with the first item, and wait for a broker that is down.

        Senders wait while more than ``max_bytes`` are unacknowledged.
        """
        self._outgoing = outgoing
        self._purpose = purpose
        self._max_bytes = max_bytes
        self._connects_early = connects_early
        self._condition = Condition()
        self._stopped = Event()
        self._session = 0  # counts producers
        self._failure: WalleError | None = None  # permanent: every sender gets it
        self._answers = 0  # counts acknowledgements
        self._failures = 0  # of producers in a row, reset by an acknowledgement
        self._lanes: dict[int, deque[_Item[T]]] = {}  # unacknowledged items
        self._unsent: deque[_Item[T]] = deque()
        self._acks: dict[int, list[int]] = {}
        self._bytes = 0
        self._in_hand = 0  # bytes of items that the producer has
        self._is_relaxed = False
        self._left: set[int] = set()  # lanes whose later items must wait for the next run
        self._producer: Producer | None = None  # the current producer
        self._is_broken = False  # the current producer failed
        self._is_careful = False  # the next producer must find the record at fault in a batch
        self.refused_records = 0
        self._thread = Thread(target=self._run, name=purpose.replace(" ", "-"), daemon=True)
        self._thread.start()

    # Hooks of subclasses

    @abstractmethod
    def _records(self, given: T) -> list[TopicRecord]:
        """Return the records of an item, in order; called by the thread."""

    @abstractmethod
    def _name(self, record: TopicRecord) -> str:
        """Return the name of a record for messages."""

    def _smaller(self, given: T, record: TopicRecord) -> TopicRecord | None:  # noqa: ARG002 - a hook
        """Return a substitute for a record that is too large; None leaves the record out."""
        return None

    # For senders

    def _queue(
        self, lane: int, number: int, given: T, size_bytes: int, partition: int | None
    ) -> None:
        """Queue an item for a partition, or for the partition of its key; blocks while full.

        Raises:
            TunnelClosedError: The sender was closed.
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
                self._left.add(lane)  # later items must not arrive before it
                return
            added = _Item(lane, number, given, size_bytes, partition)
            self._bytes += size_bytes
            self._lanes.setdefault(lane, deque()).append(added)
            self._unsent.append(added)
            self._condition.notify_all()

    def relax(self) -> None:
        """Stop making senders wait, because the run ends.

        An item without room is not sent, and neither are later items of its lane. They stay
        unacknowledged, so the next run sends them.
        """
        with self._condition:
            self._is_relaxed = True
            self._condition.notify_all()

    def acks(self, lane: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call, without gaps; never blocks.

        Raises:
            TopicError: The topic has no such partition.
            TunnelError: The thread failed, which is a bug.
        """
        with self._condition:
            self._check()
            return self._acks.pop(lane, ())

    @property
    def waiting_bytes(self) -> int:
        """Size of the unacknowledged items in bytes."""
        return self._bytes

    def close(self) -> None:
        """Wait a little for records in flight, then close."""
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
        except Exception as error:  # noqa: BLE001 - senders must learn of any error
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
                self._tell_failure(f"{self._purpose} starts again", error)
                producer.halt()
            finally:
                producer.close(_CLOSE_S)
            pause_s = _AGAIN_S * 2 ** min(max(self._failures - 1, 0), _DOUBLINGS_MAX)
            self._stopped.wait(min(pause_s, _AGAIN_MAX_S))

    def _is_needed(self) -> bool:
        # most runs have no dead letter and need no producer
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
        """Wait until ``is_there()`` is true; needs the condition, which it releases meanwhile.

        Returns False when the producer makes no progress although a broker answered twice.
        """
        seen, has_answered = self._answers, False
        while not self._condition.wait_for(is_there, STALL_S):
            if self._answers != seen or not self._has_in_hand():
                seen, has_answered = self._answers, False
                continue
            # the broker's answer may take seconds, and senders and callbacks must not wait for it
            self._condition.release()
            try:
                is_answered = self._is_answered()
            finally:
                self._condition.acquire()
            if has_answered and is_answered and self._answers == seen:
                text = "%s: no acknowledgement for %d s although a broker answers; starting again"
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
        # our lock is not held here: the producer takes its own locks, and callbacks take ours
        handed = Handed.TOO_LARGE
        while record is not None and handed is Handed.TOO_LARGE:
            try:
                handed = producer.send(record, item.partition, (session, item, place))
            except TopicError as error:
                self._fail(error)
                return False
            if handed is Handed.TOO_LARGE:
                # our own limit: the record did not reach the broker
                record = self._refuse(item, place)
        return handed is not Handed.HALTED

    def _tell_failure(self, what: str, error: Exception) -> None:
        """Count a failure and log some of them, since a broker may refuse for days."""
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
        _log.warning("%s: %s; sending again%s", what, text, advice)

    # Callbacks, in the producer's thread

    def _on_ack(self, tag: _Tag[T]) -> None:
        _, item, place = tag
        with self._condition:
            self._answers += 1
            self._failures = 0
            item.acknowledged.add(place)
            if item.pending is not None:
                item.pending.pop(place, None)
                if not item.pending:  # an item counts only as a whole
                    self._settle(item.lane)

    def _on_refusal(self, tag: _Tag[T], refusal: Refusal) -> None:
        session, item, place = tag
        with self._condition:
            if session != self._session or self._is_broken or self._producer is None:
                return  # an unsent record of a halted producer
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
        """Replace a record that is too large by a smaller one; None if the record is left out.

        Without a refusal the record exceeds our own limit.
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
        # acknowledgements stop at the first unacknowledged item, so numbers have no gaps
        items = self._lanes[lane]
        while items and items[0].is_done:
            item = items.popleft()
            if item.session == self._session:
                self._in_hand -= item.size_bytes
            self._bytes -= item.size_bytes
            self._acks.setdefault(lane, []).append(item.number)
        self._condition.notify_all()


def _said(error: Exception) -> str:
    # the error's text with its type, which texts of libraries often lack
    text = str(error)
    name = type(error).__name__
    return text if name in text else f"{name}: {text}"
