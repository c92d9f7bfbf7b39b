"""Reading of a topic of dead letters from its beginning to its current end, and marks in it."""

import logging
from collections.abc import Iterator, Sequence
from itertools import batched
from typing import Final

from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Record
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.writing import TopicWriter
from walle_connectors.letter_records import decode_letter, decode_mark, encode_mark
from walle_stream.errors import EnvelopeError
from walle_stream.ports import KeptLetter

_log = logging.getLogger(__name__)

MARKS_MAX: Final = 200
"""Largest number of letters that one mark names."""


class KafkaDeadLetterArchive:
    """Archive of dead letters in a topic; implements ``DeadLetterArchive``.

    Marks are records of the same topic, so every replay from the topic sees them. A missing or
    unreadable topic raises ``SourceError``; a topic that refuses marks raises ``TopicError``.
    """

    def __init__(self, model: KafkaDeadLetterModel) -> None:
        """Connect; blocks. Without an answer, or if TLS is refused: ``BrokerUnreachableError``."""
        self._model = model
        self._client = TopicClient(
            KafkaSourceModel.of(model, model.topic), named_by="spec.deadLetters.topic"
        )
        self._writer: TopicWriter | None = None

    def replayed(self) -> set[str]:
        """Return the keys of marked letters; see ``DeadLetterArchive.replayed``."""
        found: set[str] = set()
        for _, record in self._read():
            found.update(decode_mark(record.headers))
        return found

    def letters(self) -> Iterator[KeptLetter]:
        """Iterate over letters, partition by partition in offset order, and skip other records."""
        for number, record in self._read():
            try:
                kept = decode_letter(record.value, record.headers)
            except EnvelopeError as error:
                place = f"{self._model.topic}[{number}]@{record.offset}"
                _log.warning("%s is skipped: %s", place, error)
                continue
            if kept is not None:
                yield kept

    def mark(self, idempotency_keys: Sequence[str]) -> None:
        """Write marks; see ``DeadLetterArchive.mark``."""
        if self._writer is None:
            self._writer = TopicWriter(
                self._model, self._model.topic, max_bytes=self._model.max_bytes
            )
        for some in batched(idempotency_keys, MARKS_MAX, strict=False):
            self._writer.write(*encode_mark(some))
        self._writer.flush()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        if self._writer is not None:
            self._writer.close()

    def _read(self) -> Iterator[tuple[int, Record]]:
        client = self._client
        for number, bounds in client.bounds(range(client.identity.partition_count)).items():
            yield from ((number, record) for record in client.records(number, bounds))
