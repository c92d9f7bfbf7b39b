"""The sink of dead letters: queued by partitions, sent by one thread, acknowledged one by one.

No letter needs another one before it, so a failure is simple: the producer is ended, another
one is made, and everything without acknowledgement is sent once more. A batch that is too
large for the topic is sent letter by letter, each cut until it fits; one with a record that the
topic refuses as it is, letter by letter without that.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from kafka.errors import (
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from walle_connectors.kafka.connecting import close_producer, make_producer
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.sending import CLOSE_S, SendingThread, said
from walle_connectors.kafka.topics import (
    BATCH_OVERHEAD_BYTES,
    NeededTopic,
    check_topics,
    find_topics,
)
from walle_connectors.letter_records import LetterRecord, encode_letter
from walle_stream.errors import BrokerUnreachableError, TopicError
from walle_stream.ports import KeptLetter

_log = logging.getLogger(__name__)

_LINGER_MS: Final = 5
_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)
_OF_A_LETTER: Final = (*_TOO_LARGE, InvalidRecordError)  # whatever is tried, it is not taken


class _Letter:
    __slots__ = ("kept", "record")

    def __init__(self, kept: KeptLetter, max_bytes: int) -> None:
        self.kept = kept
        room = max_bytes - BATCH_OVERHEAD_BYTES
        record = encode_letter(kept, room)
        excess = record.size_bytes - room
        self.record: LetterRecord = record
        if excess > 0:
            self.shorten(max(len(record.value) - excess, 0))

    def shorten(self, value_max_bytes: int) -> None:
        self.record = encode_letter(self.kept, value_max_bytes)


class KafkaDeadLetterSink(SendingThread[Any]):
    """Implements ``DeadLetterSink``. Thread-safe."""

    def __init__(self, model: KafkaDeadLetterModel) -> None:
        """Check the topic and begin to connect; blocks for some seconds at most.

        Raises:
            TopicError: A broker answers, but the topic is missing, or compacted.
            BrokerUnreachableError: A file of ``tls`` is missing, or cannot be used.
        """
        model.check_files()  # to wait does not help a file that is not there
        try:
            check_topics(model, [_needed(model)])
            _expect_kept(model)
        except BrokerUnreachableError as error:
            _log.warning("%s; dead letters wait in the data directory meanwhile", error)
        purpose = f"sending dead letters to topic {model.topic!r}"
        super().__init__(model, purpose, "walle-kafka-letters")
        self._model = model
        self._waiting: dict[tuple[int, int], _Letter] = {}  # without acknowledgement
        self._unsent: dict[tuple[int, int], None] = {}  # of these, in their order
        self._acks: dict[int, list[int]] = {}
        self._refusal: Exception | None = None  # of the producer at hand
        self._is_careful = False  # send them one by one
        self._thread.start()

    def send(self, kept: KeptLetter) -> None:
        """Queue a letter; see ``DeadLetterSink.send``."""
        place = kept.partition, kept.number
        letter = _Letter(kept, self._model.max_bytes)
        with self._condition:
            self._waiting[place] = letter
            self._unsent[place] = None
            self._condition.notify_all()

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``DeadLetterSink.acks``.

        Raises:
            TunnelError: The thread has failed, whatever its reason: a bug.
        """
        with self._condition:
            self._check()
            return self._acks.pop(partition, ())

    # The thread

    def _is_needed(self) -> bool:
        # most runs have none: no producer is made for them
        return bool(self._waiting)

    def _make_producer(self) -> Any:
        model = self._model
        # a client asks for a missing topic without a pause
        check_topics(model, [_needed(model)])
        producer = make_producer(model, model.codec, _LINGER_MS, model.max_bytes)
        try:
            producer.partitions_for(model.topic)
        except KafkaError:
            close_producer(producer, 0)
            raise
        return producer

    def _take_over(self, producer: Any) -> None:
        del producer
        self._refusal = None
        self._unsent = dict.fromkeys(self._waiting)

    def _feed(self, producer: Any) -> None:
        self._pump(producer)
        if self._refusal is None:
            close_producer(producer, CLOSE_S)
            return
        producer.halt()
        self._say(self._refusal)

    def _pump(self, producer: Any) -> None:
        while True:
            with self._condition:
                is_there = self._wait_until(
                    lambda: self._unsent or self._refusal or self._stopped.is_set()
                )
                if not is_there:
                    self._refusal = KafkaTimeoutError("no acknowledgement")
                if self._refusal is not None or not self._unsent:
                    return
                place = next(iter(self._unsent))
                del self._unsent[place]
                letter = self._waiting.get(place)
                is_careful, session = self._is_careful, self._session
            if letter is not None:
                self._hand_over(producer, session, place, letter)
            if is_careful:
                self._await(place)

    def _has_in_hand(self) -> bool:
        return len(self._waiting) > len(self._unsent)

    def _hand_over(
        self, producer: Any, session: int, place: tuple[int, int], letter: _Letter
    ) -> None:
        # no lock is held: the producer's own are taken here, and ours in its callbacks
        key, value, headers = letter.record
        try:
            future = producer.send(self._model.topic, value, key, headers)
        except KafkaError as error:
            self._on_error(session, place, error)
            return
        future.add_callback(self._on_ack, place, letter)
        future.add_errback(self._on_error, session, place)

    def _await(self, place: tuple[int, int]) -> None:
        with self._condition:
            if not self._wait_until(
                lambda: place not in self._waiting or self._refusal or self._stopped.is_set()
            ):
                self._refusal = KafkaTimeoutError("no acknowledgement")
            if not self._unsent and self._refusal is None:
                self._is_careful = False

    # Callbacks, in the producer's thread

    def _on_ack(self, place: tuple[int, int], letter: _Letter, _metadata: Any) -> None:
        with self._condition:
            self._answers += 1
            # by which producer does not matter: it is in the topic
            if self._waiting.get(place) is letter:
                self._settle(place)
            self._failures = 0

    def _on_error(self, session: int, place: tuple[int, int], error: Exception) -> None:
        with self._condition:
            if session != self._session or self._refusal is not None:
                return  # what a producer that failed had not sent
            self._refusal = error
            if isinstance(error, _OF_A_LETTER):
                if self._is_careful and isinstance(error, _TOO_LARGE):
                    self._shorten(place)
                elif self._is_careful:
                    self._leave_out(place, error)
                # of several in a batch kafka-python does not say which
                self._is_careful = True
            self._condition.notify_all()

    def _shorten(self, place: tuple[int, int]) -> None:
        letter = self._waiting.get(place)
        if letter is None:
            return
        size_bytes = len(letter.record.value)
        if size_bytes:
            letter.shorten(size_bytes // 2)
            return
        _log.error(
            "dead letter %s is too large for topic %r even without its record and is not sent; it "
            "stays in the data directory: raise max.message.bytes of the topic",
            letter.kept.idempotency_key,
            self._model.topic,
        )
        self._settle(place)

    def _leave_out(self, place: tuple[int, int], error: Exception) -> None:
        letter = self._waiting.get(place)
        if letter is None:
            return
        _log.error(
            "dead letter %s is refused by topic %r (%s) and is not sent; it stays in the data "
            "directory: a topic that is compacted takes no letter without a device",
            letter.kept.idempotency_key,
            self._model.topic,
            said(error),
        )
        self._settle(place)

    def _settle(self, place: tuple[int, int]) -> None:
        del self._waiting[place]
        self._unsent.pop(place, None)
        partition, number = place
        self._acks.setdefault(partition, []).append(number)
        self._condition.notify_all()

    def _say(self, error: Exception) -> None:
        if isinstance(error, _OF_A_LETTER):
            return
        self._tell_failure(f"topic {self._model.topic!r} takes no dead letters", error)


def _expect_kept(model: KafkaDeadLetterModel) -> None:
    needed = _needed(model)
    try:
        found = find_topics(model, [needed], has_settings=True)[model.topic]
    except TopicError:
        return  # its settings are not ours to see: that is a right of its own
    if found is not None and "compact" in found.settings.get("cleanup.policy", ""):
        raise TopicError(
            f"topic {model.topic!r} ({needed.key}) is compacted: it would keep the last letter of "
            "each device and refuse those without one; set cleanup.policy=delete",
            model.topic,
        )


def _needed(model: KafkaDeadLetterModel) -> NeededTopic:
    return NeededTopic(model.topic, "spec.deadLetters.topic")
