"""A topic of raw events as a source.

``opening`` opens the topic or joins its group. ``reader`` reads all partitions; ``membership``
reads those that a consumer group assigns to this host. ``offsets`` has a partition's position and
decides where it begins. ``records`` decodes records. ``client`` asks the brokers. ``drivers``
chooses one of two libraries, each of which implements two ports: ``fetching`` gets records
(``python_fetcher``, ``confluent``), ``group`` joins groups (``python_group``, ``confluent_group``).
The libraries are extras, so each is imported only when it is needed.
"""

from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.opening import KafkaSource

__all__ = ["KafkaSource", "KafkaSourceModel"]
