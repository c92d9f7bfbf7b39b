"""The device side of the way up: frames in, records of a topic out, acknowledgements back.

One thread makes the producer, hands records to it and makes another when it failed;
senders only put frames into a queue that is bounded in bytes. A device's records must
never arrive with a hole (who receives drops what is not newer than the last), so:

- the records of a partition go to one partition of the topic, by one idempotent producer,
  which has one batch of it on the way at a time;
- when a batch fails for good, the producer is halted in the same moment, before it sends
  what follows, and another one begins with the first record that is not acknowledged;
- frames become records only when they are handed over, and ``HAND_BYTES`` of frames at most: as
  records they are some ten times as large, and a broker may be down for days;
- a record that is too large for the topic is left out, told in the log and counted: it
  stays among the device's own features, and another producer goes on behind it.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from kafka.errors import KafkaError

from walle_connectors.kafka.confluent_producer import ConfluentProducer
from walle_connectors.kafka.producing import Handed, Producer, PythonProducer, Refusal
from walle_connectors.kafka.sending import CLOSE_S, SendingThread
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.tunnel_records import TopicRecord, frame_to_records, record_name
from walle_stream.errors import TopicError, TunnelClosedError
from walle_stream.types import UplinkFrame
from walle_stream.wire.envelope import decode_uplink

_log = logging.getLogger(__name__)

HAND_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of frames that the producer has at once."""

type _Tag = tuple[int, _Frame, int]  # number of the producer, frame, place of the record


class _Frame:
    # its records are made when it is handed over; gone when all are acknowledged

    __slots__ = ("acknowledged", "data", "number", "partition", "pending", "session", "size_bytes")

    def __init__(self, partition: int, number: int, data: bytes) -> None:
        self.partition = partition
        self.number = number
        self.data = data
        self.size_bytes = len(data)
        self.acknowledged: set[int] = set()  # places of records
        self.pending: dict[int, TopicRecord] | None = None  # the others, while handed over
        self.session = 0  # of the producer that has it

    @property
    def is_done(self) -> bool:
        return self.pending is not None and not self.pending


class KafkaUplink(SendingThread[Producer]):
    """Implements ``Uplink``. Thread-safe."""

    def __init__(self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0) -> None:
        """Begin to connect; a broker that is down is waited for; see ``KafkaTunnel``."""
        super().__init__(model, f"the tunnel {model.topic!r}", "walle-kafka-uplink")
        self._model = model
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._lanes: dict[int, deque[_Frame]] = {}  # not acknowledged, by partition
        self._unsent: deque[_Frame] = deque()
        self._acks: dict[int, list[int]] = {}
        self._bytes = 0
        self._in_hand = 0  # bytes of frames that the producer has
        self._is_relaxed = False
        self._left: set[int] = set()  # partitions whose next frames wait for the next run
        self._producer: Producer | None = None  # the one at hand
        self._is_broken = False  # that one
        self._is_careful = False  # the next one: a batch was too large, find the record
        self.refused_records = 0
        self._thread.start()

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Queue frames; see ``Uplink.send``.

        Raises:
            TunnelClosedError: The tunnel was closed; the frames stay in the outbox.
            TopicError: The topic has no such partition.
            EnvelopeError: A frame is none.
        """
        for each in frames:
            self._queue(*each)

    def _queue(self, partition: int, number: int, frame: bytes) -> None:
        decode_uplink(frame)  # what is none is said to its sender
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._stopped.is_set()
                    or self._failure is not None
                    or self._is_relaxed
                    or self._has_room(len(frame))
                )
            )
            self._check()
            if self._stopped.is_set():
                raise TunnelClosedError(
                    f"the tunnel to topic {self._model.topic!r} is closed: frame {number} of "
                    f"partition {partition} stays in the outbox"
                )
            if partition in self._left or not self._has_room(len(frame)):
                self._left.add(partition)  # what follows must not arrive before it
                return
            added = _Frame(partition, number, frame)
            self._bytes += len(frame)
            self._lanes.setdefault(partition, deque()).append(added)
            self._unsent.append(added)
            self._condition.notify_all()

    def relax(self) -> None:
        """Let no sender wait any more, because the run ends.

        A frame without room is not sent, nor are those of its partition behind it: they
        have no acknowledgement, so the next run sends them from the outbox.
        """
        with self._condition:
            self._is_relaxed = True
            self._condition.notify_all()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._bytes or self._bytes + size_bytes <= self._max_bytes

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``Uplink.acks``.

        Raises:
            TopicError: The topic has no such partition.
        """
        with self._condition:
            self._check()
            return self._acks.pop(partition, ())

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the frames without acknowledgement."""
        return self._bytes

    # The thread

    def _make_producer(self) -> Producer:
        if self._model.driver == "kafka-python":
            return PythonProducer(self._model, self._on_ack, self._on_refusal, self._partitions)
        return ConfluentProducer(
            self._model,
            self._on_ack,
            self._on_refusal,
            self._partitions,
            is_careful=self._is_careful,
        )

    def _take_over(self, producer: Producer) -> None:
        self._producer = producer
        self._is_broken = False
        self._in_hand = 0
        self._unsent = deque(
            frame for lane in self._lanes.values() for frame in lane if not frame.is_done
        )
        for frame in self._unsent:
            frame.pending = None

    def _feed(self, producer: Producer) -> None:
        try:
            self._pump(producer, self._session)
        except KafkaError as error:
            self._tell_failure(f"the tunnel {self._model.topic!r} begins anew", error)
            producer.halt()
        finally:
            producer.close(CLOSE_S)

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
                frame = self._unsent.popleft()
                frame.session = session
                self._in_hand += frame.size_bytes
            records = frame_to_records(frame.data, self._model.format, has_trace=self._model.trace)
            with self._condition:
                pending = [each for each in enumerate(records) if each[0] not in frame.acknowledged]
                frame.pending = dict(pending)
                self._settle(frame.partition)
            for place, record in pending:
                if not self._hand_over(producer, session, frame, place, record):
                    return

    def _has_in_hand(self) -> bool:
        return self._in_hand > 0

    def _may_hand_over(self) -> bool:
        if not self._unsent:
            return False
        in_hand = self._in_hand
        return not in_hand or in_hand + self._unsent[0].size_bytes <= HAND_BYTES

    def _hand_over(
        self, producer: Producer, session: int, frame: _Frame, place: int, record: TopicRecord
    ) -> bool:
        # no lock is held: the producer's own are taken here, and ours in its callbacks
        try:
            handed = producer.send(record, frame.partition, (session, frame, place))
        except TopicError as error:
            self._fail(error)
            return False
        if handed is Handed.TOO_LARGE:
            self._refuse(frame, place)  # our own limit: the broker has seen nothing of it
        return handed is not Handed.HALTED

    # Callbacks, in the producer's thread

    def _on_ack(self, tag: _Tag) -> None:
        _, frame, place = tag
        with self._condition:
            self._answers += 1
            self._failures = 0
            frame.acknowledged.add(place)
            if frame.pending is not None:
                frame.pending.pop(place, None)
                if not frame.pending:  # nobody waits for a record alone
                    self._settle(frame.partition)

    def _on_refusal(self, tag: _Tag, refusal: Refusal) -> None:
        session, frame, place = tag
        with self._condition:
            if session != self._session or self._is_broken or self._producer is None:
                return  # what a halted producer had not sent
            self._is_broken = True
            self._producer.halt()
            self._is_careful = refusal.is_too_large and not refusal.is_alone
            if refusal.is_too_large and refusal.is_alone:
                self._refuse(frame, place)
            self._condition.notify_all()
        if not refusal.is_too_large:
            what = f"partition {frame.partition} of topic {self._model.topic!r} refuses records"
            self._tell_failure(what, refusal.error)

    def _refuse(self, frame: _Frame, place: int) -> None:
        with self._condition:
            record = None if frame.pending is None else frame.pending.pop(place, None)
            if record is None:
                return
            frame.acknowledged.add(place)
            self.refused_records += 1
            _log.error(
                "%s: a record of %d bytes is too large for topic %r and is not sent; a feature "
                "stays in the device's own: raise max.message.bytes of the topic and "
                "spec.tunnel.maxBytes (%d)",
                record_name(record),
                len(record.value),
                self._model.topic,
                self._model.max_bytes,
            )
            self._settle(frame.partition)

    def _settle(self, partition: int) -> None:
        # acknowledged up to the first frame that is not: contiguous
        lane = self._lanes[partition]
        while lane and lane[0].is_done:
            frame = lane.popleft()
            if frame.session == self._session:
                self._in_hand -= frame.size_bytes
            self._bytes -= frame.size_bytes
            self._acks.setdefault(partition, []).append(frame.number)
        self._condition.notify_all()
