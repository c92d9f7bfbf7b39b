"""The device side of the way up: frames in, records of a topic out, acknowledgements back."""

from collections.abc import Sequence
from typing import override

from walle_connectors.kafka.producing import Outgoing, TopicRecord
from walle_connectors.kafka.sending import RecordSender
from walle_connectors.kafka.topics import tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.tunnel_records import frame_to_records, record_name
from walle_stream.types import UplinkFrame
from walle_stream.wire.envelope import decode_uplink


class KafkaUplink(RecordSender[bytes]):
    """Implements ``Uplink``. Thread-safe."""

    def __init__(self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0) -> None:
        """Begin to connect; a broker that is down is waited for; see ``KafkaTunnel``."""
        self._model = model
        super().__init__(
            Outgoing.of(model, tunnel_topics(model, partitions)[0]),
            f"the tunnel {model.topic!r}",
            max_bytes=max_bytes,
            connects_early=True,
        )

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Queue frames; see ``Uplink.send``.

        Raises:
            TunnelClosedError: The tunnel was closed; the frames stay in the outbox.
            TopicError: The topic has no such partition.
            EnvelopeError: A frame is none.
        """
        for partition, number, frame in frames:
            decode_uplink(frame)  # the sender of bytes that are no frame gets the error
            self._queue(partition, number, frame, len(frame), partition)

    @override
    def _records(self, given: bytes) -> list[TopicRecord]:
        return frame_to_records(given, self._model.format, has_trace=self._model.trace)

    @override
    def _name(self, record: TopicRecord) -> str:
        return record_name(record)
