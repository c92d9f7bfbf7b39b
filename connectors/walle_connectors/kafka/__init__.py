"""Apache Kafka: a topic of raw events as a source.

``connection`` is what all parts share. The source: ``source`` opens, ``reader`` reads all
partitions, ``membership`` those that a consumer group gives to this host; ``offsets`` says
where a partition stands and where it begins, ``records`` makes batches of records. ``command``
is ``walle replay``. Nothing here imports kafka-python before it is needed, since it is an extra.
"""

from typing import Final

from walle_connectors.kafka.model import KafkaSourceModel
from walle_connectors.kafka.source import KafkaSource


class KafkaConnector:
    """Entry point ``kafka``."""

    name: Final = "kafka"
    model: Final = KafkaSourceModel

    def open(self, model: KafkaSourceModel) -> KafkaSource:
        """Return the source of a definition; no broker is asked yet.

        Args:
            model: Validated keys.
        """
        return KafkaSource(model)


CONNECTOR: Final = KafkaConnector()
"""What the entry point names."""
