"""Apache Kafka: ``source`` reads a topic of raw events, ``replay`` writes and records one.

``connection`` is what all parts share. Nothing here imports kafka-python before it is
needed, since it is an extra.
"""

from typing import Final

from walle_connectors.kafka.source import KafkaSource, KafkaSourceModel


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
