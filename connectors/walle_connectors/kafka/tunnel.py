"""The tunnel over Kafka: the devices' end."""

import logging
from typing import override

from walle_connectors.kafka.downlink import KafkaDownlink
from walle_connectors.kafka.drivers import driver_problem
from walle_connectors.kafka.topics import check_topics, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.kafka.uplink import KafkaUplink
from walle_stream.errors import BrokerUnreachableError, TunnelError

_log = logging.getLogger(__name__)


class KafkaTunnel(KafkaUplink):
    """The devices' end; implements ``DeviceTunnel``. Thread-safe."""

    def __init__(self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0) -> None:
        """Check the topics and begin to connect; blocks for some seconds at most.

        ``max_bytes`` bounds the frames without acknowledgement; senders wait beyond it. 0
        partitions allow any number.

        Raises:
            TopicError: A broker answers, but a topic is missing, or has another number.
            BrokerUnreachableError: A file of ``tls`` is missing, or cannot be used.
            TunnelError: The driver is not installed.
        """
        problem = driver_problem(model.driver, "spec.tunnel.driver")
        if problem:
            raise TunnelError(problem)
        model.check_files()  # to wait does not help a file that is not there
        try:
            check_topics(model, tunnel_topics(model, partitions))
        except BrokerUnreachableError as error:
            # a device is often without a network: the outbox keeps what is to be sent
            _log.warning("%s; frames wait in the outbox meanwhile", error)
        super().__init__(model, max_bytes, partitions)
        self.downlink = KafkaDownlink(model)

    @override
    def close(self) -> None:
        """Close both ways; waiting senders get ``TunnelClosedError``."""
        super().close()
        self.downlink.close()
