"""The devices' end of the tunnel over Kafka: frames up as records of a topic, messages down."""

import logging
from collections.abc import Sequence
from typing import override

from walle_connectors.kafka.downlink import KafkaDownlink
from walle_connectors.kafka.drivers import driver_problem
from walle_connectors.kafka.producing import Outgoing, TopicRecord
from walle_connectors.kafka.sending import RecordSender
from walle_connectors.kafka.topics import check_topics, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.tunnel_records import frame_to_records, record_name
from walle_stream.errors import BrokerUnreachableError, TunnelError
from walle_stream.types import UplinkFrame
from walle_stream.wire.envelope import decode_uplink

_log = logging.getLogger(__name__)


class KafkaUplink(RecordSender[bytes]):
    """The uplink alone; implements ``Uplink``. Thread-safe."""

    def __init__(self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0) -> None:
        """Start connecting and wait for a broker that is down; see ``KafkaTunnel``."""
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
            EnvelopeError: A frame is invalid.
        """
        for partition, number, frame in frames:
            decode_uplink(frame)  # raise the error for an invalid frame in its sender
            self._queue(partition, number, frame, len(frame), partition)

    @override
    def _records(self, given: bytes) -> list[TopicRecord]:
        return frame_to_records(given, self._model.format, has_trace=self._model.trace)

    @override
    def _name(self, record: TopicRecord) -> str:
        return record_name(record)


class KafkaTunnel(KafkaUplink):
    """The devices' end of the tunnel; implements ``DeviceTunnel``. Thread-safe."""

    def __init__(self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0) -> None:
        """Check the topics and start connecting; blocks for some seconds at most.

        ``max_bytes`` limits the unacknowledged frames; senders wait beyond it. 0 partitions allow
        any number.

        Raises:
            TopicError: A topic is missing or has another number of partitions.
            BrokerUnreachableError: A file of ``tls`` is missing or cannot be used.
            TunnelError: The driver is not installed.
        """
        problem = driver_problem(model.driver, "spec.tunnel.driver")
        if problem:
            raise TunnelError(problem)
        model.check_files()  # waiting does not help against a missing file
        try:
            check_topics(model, tunnel_topics(model, partitions))
        except BrokerUnreachableError as error:
            # a device often has no network, and the outbox keeps the frames
            _log.warning("%s; frames wait in the outbox meanwhile", error)
        super().__init__(model, max_bytes, partitions)
        self.downlink = KafkaDownlink(model)

    @override
    def close(self) -> None:
        """Close both ways; waiting senders get ``TunnelClosedError``."""
        super().close()
        self.downlink.close()
