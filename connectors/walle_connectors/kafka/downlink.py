"""The downlink over a topic: messages by device, in the partition from which the device sends."""

from collections.abc import Sequence
from typing import override

from walle_connectors.kafka.producing import Outgoing, TopicRecord
from walle_connectors.kafka.sending import RecordSender
from walle_connectors.kafka.source.fetching import Record
from walle_connectors.kafka.topic_reader import TopicReader, within
from walle_connectors.kafka.topics import tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import EnvelopeError, TopicError
from walle_stream.types import UplinkFrame
from walle_stream.wire.calls import REPLY_KIND, decode_reply, encode_reply
from walle_stream.wire.envelope import decode_downlink, encode_downlink
from walle_stream.wire.message import decode_message, encode_message


class KafkaDownlink:
    """Implements ``Downlink``; a position is the offset of the next record to read."""

    def __init__(self, model: KafkaTunnelModel) -> None:
        """Prepare to read requested partitions; without ``downTopic`` there are no messages."""
        self._reader = TopicReader(model, model.down_topic) if model.down_topic else None

    @property
    def log_id(self) -> str:
        """The topic's id; see ``HasLog.log_id``."""
        return "" if self._reader is None else self._reader.topic_id

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages fetched so far; a topic that was recreated raises ``TopicError``."""
        if self._reader is None:
            return ()
        found = self._reader.take({partition: position}).get(partition, ())
        return [(each.offset + 1, _envelope(each)) for each in within(found, max_bytes)]

    def is_behind(self, partition: int) -> bool:
        """Return whether records from before the first request are unread; see ``HasLog``."""
        return self._reader is not None and self._reader.is_behind(partition)

    def release(self, partition: int, position: int) -> None:
        """Do nothing: the topic's retention decides; see ``Downlink.release``."""

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()


def _envelope(record: Record) -> bytes:
    # an undecodable record is passed on unchanged: the device's side refuses and counts it
    try:
        return encode_downlink(decode_message(record.key, record.value, record.headers))
    except EnvelopeError:
        return record.value or b""


class KafkaDownlinkSender(RecordSender[bytes]):
    """Implements ``DownlinkSender``; several may send to one topic. Thread-safe."""

    def __init__(
        self,
        model: KafkaTunnelModel,
        max_bytes: int,
        partitions: int = 0,
        *,
        connects_early: bool = False,
    ) -> None:
        """Connect at once, or with the first message.

        Senders wait while more than ``max_bytes`` are unacknowledged. 0 partitions allow any
        number.

        Raises:
            TopicError: The model has no ``downTopic``.
        """
        if not model.down_topic:
            raise TopicError("messages cannot be sent to devices: set spec.tunnel.downTopic")
        super().__init__(
            Outgoing.of(model, tunnel_topics(model, partitions)[1]),
            f"the downlink {model.down_topic!r}",
            max_bytes=max_bytes,
            connects_early=connects_early,
        )

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Queue messages; see ``DownlinkSender``.

        Raises:
            TunnelClosedError: The tunnel was closed.
            TopicError: The topic has no such partition.
        """
        for partition, number, message in frames:
            self._queue(partition, number, message, len(message), partition)

    @override
    def _records(self, given: bytes) -> list[TopicRecord]:
        return [TopicRecord(*encode_message(decode_downlink(given)))]

    @override
    def _smaller(self, given: bytes, record: TopicRecord) -> TopicRecord | None:
        # a device that made a call must get a reply
        envelope = decode_downlink(given)
        if envelope.kind != REPLY_KIND:
            return None
        envelope.payload = encode_reply(decode_reply(envelope.payload).without_value())
        is_smaller = len(envelope.payload) < len(record.value)
        return TopicRecord(*encode_message(envelope)) if is_smaller else None

    @override
    def _name(self, record: TopicRecord) -> str:
        return f"a message for device {(record.key or b'').decode()}"
