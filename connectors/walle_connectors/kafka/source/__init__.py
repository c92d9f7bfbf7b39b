"""A topic of raw events as a source.

``opening`` opens the topic or joins its group, ``reader`` reads all partitions, ``membership``
those that a consumer group gives to this host; ``offsets`` says where a partition stands and
where it begins, ``records`` makes batches of records. ``client`` and ``reaching`` ask the
brokers. Nothing imports kafka-python before it is needed, since it is an extra.
"""

from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.opening import KafkaSource

__all__ = ["KafkaSource", "KafkaSourceModel"]
