"""The sink of dead letters; it cuts a letter that is too large for the topic until it fits."""

import logging
from typing import Final, override

from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.producing import Outgoing, TopicRecord
from walle_connectors.kafka.sending import RecordSender
from walle_connectors.kafka.topics import BATCH_OVERHEAD_BYTES, check_topics, expect_kept
from walle_connectors.letter_records import PREFIX, encode_letter
from walle_stream.errors import BrokerUnreachableError
from walle_stream.ports import KeptLetter

_log = logging.getLogger(__name__)

_LINGER_MS: Final = 5


class KafkaDeadLetterSink(RecordSender[KeptLetter]):
    """Implements ``DeadLetterSink``. Thread-safe."""

    def __init__(self, model: KafkaDeadLetterModel) -> None:
        """Check the topic and start connecting; blocks for some seconds at most.

        Raises:
            TopicError: A broker answers, but the topic is missing or compacted.
            BrokerUnreachableError: A file of ``tls`` is missing or cannot be used.
        """
        model.check_files()  # waiting does not help against a missing file
        needed = NeededTopic(model.topic, "spec.deadLetters.topic", max_bytes=model.max_bytes)
        try:
            check_topics(model, [needed])
            expect_kept(model, needed)
        except BrokerUnreachableError as error:
            _log.warning("%s; dead letters wait in the data directory meanwhile", error)
        self._room_bytes = model.max_bytes - BATCH_OVERHEAD_BYTES
        outgoing = Outgoing(connection=model, topic=needed, codec=model.codec, linger_ms=_LINGER_MS)
        super().__init__(outgoing, f"sending dead letters to topic {model.topic!r}")

    def send(self, kept: KeptLetter) -> None:
        """Queue a letter; see ``DeadLetterSink.send``."""
        self._queue(kept.partition, kept.number, kept, len(kept.letter.record), None)

    @override
    def _records(self, given: KeptLetter) -> list[TopicRecord]:
        record = encode_letter(given, self._room_bytes)
        excess = record.size_bytes - self._room_bytes
        if excess > 0:
            record = encode_letter(given, max(len(record.value) - excess, 0))
        return [TopicRecord(*record)]

    @override
    def _smaller(self, given: KeptLetter, record: TopicRecord) -> TopicRecord | None:
        size_bytes = len(record.value)
        return TopicRecord(*encode_letter(given, size_bytes // 2)) if size_bytes else None

    @override
    def _name(self, record: TopicRecord) -> str:
        return f"dead letter {dict(record.headers)[PREFIX + 'id'].decode()}"
