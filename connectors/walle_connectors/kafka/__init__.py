"""Apache Kafka: raw events of a topic, and the tunnel: features and calls up, answers down.

``walle_connectors.brokers`` is what all parts share. ``source`` reads a topic, ``replay`` writes
and records one. ``tunnel`` is the devices' end of the tunnel, ``cloud`` and the sender of
``downlink`` the cloud's; ``tunnel_records`` makes records of frames.
``dead_letters`` has a topic of its own; ``sending`` is how all of them send.
``command`` is ``walle topics`` and ``walle doctor``.
Two libraries talk to clusters, kafka-python and librdkafka, each an extra and each complete.
``drivers`` chooses one, behind ``cluster.Cluster``, ``source.fetching.Fetcher``,
``source.group.Group``, ``producing.Producer`` and ``sink_lane.SinkLane``; all else talks to these.
"""

from typing import TYPE_CHECKING, Final

from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.placing import murmur2
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.source import KafkaSource, KafkaSourceModel
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel

if TYPE_CHECKING:
    from walle_connectors.kafka.dead_letters.archive import KafkaDeadLetterArchive
    from walle_connectors.kafka.dead_letters.returning import KafkaRecordReturn
    from walle_connectors.kafka.dead_letters.sink import KafkaDeadLetterSink
    from walle_connectors.kafka.downlink import KafkaDownlinkSender
    from walle_connectors.kafka.sink import KafkaSink
    from walle_connectors.kafka.tunnel import KafkaTunnel


class KafkaConnector:
    """Entry point ``kafka``.

    A missing topic is a ``TopicError``, or a ``SourceError`` for an archive, which reads it.
    Brokers that do not answer, or refuse TLS, are a ``BrokerUnreachableError``; the tunnel and the
    sink wait for them.
    """

    name: Final = "kafka"
    model: Final = KafkaSourceModel
    tunnel_model: Final = KafkaTunnelModel
    letter_model: Final = KafkaDeadLetterModel
    sink_model: Final = KafkaSinkModel

    def open(self, model: KafkaSourceModel) -> KafkaSource:
        """Return the source of a definition; no broker is asked yet."""
        return KafkaSource(model)

    def device_partition(self, device_id: str, partitions: int) -> int:
        """Return the partition of a device's key, as Kafka's own clients place it (murmur2)."""
        return murmur2(device_id.encode()) % partitions

    def open_device(
        self, model: KafkaTunnelModel, max_bytes: int, partitions: int = 0
    ) -> "KafkaTunnel":
        """Open the devices' end of a tunnel; blocks for some seconds at most."""
        from walle_connectors.kafka.tunnel import KafkaTunnel  # noqa: PLC0415 - when used

        return KafkaTunnel(model, max_bytes, partitions)

    def open_sender(
        self, model: KafkaTunnelModel, max_bytes: int, partitions: int
    ) -> "KafkaDownlinkSender":
        """Open the cloud's end of the way down; blocks for some seconds at most.

        ``max_bytes`` bounds what is sent and not acknowledged. The topic must have the partitions.
        """
        from walle_connectors.kafka.downlink import KafkaDownlinkSender  # noqa: PLC0415 - when used
        from walle_connectors.kafka.topics import check_topics, tunnel_topics  # noqa: PLC0415

        model.check_files()
        check_topics(model, tunnel_topics(model, partitions)[1:])
        return KafkaDownlinkSender(model, max_bytes, partitions)

    def open_sink(self, model: KafkaSinkModel, identity: str) -> "KafkaSink":
        """Prepare a topic for merged features; brokers are asked with the first ones."""
        from walle_connectors.kafka.sink import KafkaSink  # noqa: PLC0415 - when used

        return KafkaSink(model, identity)

    def open_letters(self, model: KafkaDeadLetterModel) -> "KafkaDeadLetterSink":
        """Open a topic for dead letters; blocks for some seconds at most."""
        from walle_connectors.kafka.dead_letters.sink import (  # noqa: PLC0415 - when used
            KafkaDeadLetterSink,
        )

        return KafkaDeadLetterSink(model)

    def open_archive(self, model: KafkaDeadLetterModel) -> "KafkaDeadLetterArchive":
        """Open a topic of dead letters for reading; blocks."""
        from walle_connectors.kafka.dead_letters.archive import (  # noqa: PLC0415 - when used
            KafkaDeadLetterArchive,
        )

        return KafkaDeadLetterArchive(model)

    def open_return(self, model: KafkaSourceModel) -> "KafkaRecordReturn":
        """Open the way of records back into a source's topic; blocks."""
        from walle_connectors.kafka.dead_letters.returning import (  # noqa: PLC0415 - when used
            KafkaRecordReturn,
        )

        return KafkaRecordReturn(model)


CONNECTOR: Final = KafkaConnector()
