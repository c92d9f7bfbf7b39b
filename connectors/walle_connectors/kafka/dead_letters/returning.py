"""Return of records to a pipeline's source topic."""

from typing import Final

from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.writing import TopicWriter
from walle_connectors.letter_records import PREFIX
from walle_stream.ports import RECORD_MAX_BYTES, KeptLetter

_ROOM_BYTES: Final = 16 * 1024  # for key and headers


class KafkaRecordReturn:
    """Writer of returned records with their old key and value; implements ``RecordReturn``.

    The arrival time is new. A record goes back to its old partition, however it was placed there,
    since that partition holds the device's state. For errors see ``TopicWriter``.
    """

    def __init__(self, model: KafkaSourceModel) -> None:
        """Connect; blocks."""
        self._writer = TopicWriter(model, model.topic, max_bytes=RECORD_MAX_BYTES + _ROOM_BYTES)

    def put(self, kept: KeptLetter) -> None:
        """Write a record; see ``RecordReturn.put``."""
        letter = kept.letter
        key = letter.device_id.encode() or None
        headers = [(PREFIX + "id", kept.idempotency_key.encode())]
        self._writer.write(key, letter.record, headers, kept.partition)

    def flush(self) -> None:
        """Wait for acknowledgements; see ``RecordReturn.flush``."""
        self._writer.flush()

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()
