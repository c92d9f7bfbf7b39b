"""Apache Kafka: a source of raw events, and a tunnel: features and calls up, answers down.

``walle_connectors.brokers`` holds the code that all parts share. ``source`` reads a topic;
``replay`` writes or records a topic. ``tunnel`` is the devices' end of the tunnel. ``cloud`` and
the sender of ``downlink`` are the cloud's end. ``tunnel_records`` turns frames into records.
``dead_letters`` uses a topic of its own. All of these send through ``sending``.
``command`` has ``walle topics`` and ``walle doctor``.
Two libraries talk to clusters: kafka-python and librdkafka. Each is a complete, optional extra.
``drivers`` chooses between them. All other code uses their common protocols: ``cluster.Cluster``,
``source.fetching.Fetcher``, ``source.group.Group``, ``producing.Producer``, ``sink_lane.SinkLane``.
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

    A missing topic raises ``TopicError``, but ``SourceError`` for an archive, which reads it.
    Brokers that do not answer, or refuse TLS, raise ``BrokerUnreachableError``; the tunnel and the
    sink wait for them instead.
    """

    name: Final = "kafka"
    model: Final = KafkaSourceModel
    tunnel_model: Final = KafkaTunnelModel
    letter_model: Final = KafkaDeadLetterModel
    sink_model: Final = KafkaSinkModel

    def open(self, model: KafkaSourceModel) -> KafkaSource:
        """Return the source of a definition without contacting a broker."""
        return KafkaSource(model)

    def device_partition(self, device_id: str, partitions: int) -> int:
        """Return the partition that Kafka's own clients choose for a device's key (murmur2)."""
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
        """Open the cloud's end of the downlink; blocks for some seconds at most.

        ``max_bytes`` limits the unacknowledged bytes. The topic must have that many partitions.
        """
        from walle_connectors.kafka.downlink import KafkaDownlinkSender  # noqa: PLC0415 - when used
        from walle_connectors.kafka.topics import check_topics, tunnel_topics  # noqa: PLC0415

        model.check_files()
        check_topics(model, tunnel_topics(model, partitions)[1:])
        return KafkaDownlinkSender(model, max_bytes, partitions)

    def open_sink(self, model: KafkaSinkModel, identity: str) -> "KafkaSink":
        """Prepare a topic for merged features; the first features contact the brokers."""
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
        """Open a writer that returns records to a source's topic; blocks."""
        from walle_connectors.kafka.dead_letters.returning import (  # noqa: PLC0415 - when used
            KafkaRecordReturn,
        )

        return KafkaRecordReturn(model)


CONNECTOR: Final = KafkaConnector()
