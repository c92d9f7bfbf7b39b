"""A topic of raw events as a source.

``opening`` opens the topic or joins its group, ``reader`` reads all partitions, ``membership``
those that a consumer group gives to this host; ``offsets`` says where a partition stands and
where it begins, ``records`` makes batches of records. Two libraries stand behind two ports, which
``drivers`` chooses from: ``fetching`` gets records (``confluent`` is the second one's), ``group``
is the membership (``python_group``, ``confluent_group``). ``client`` asks the brokers.
Nothing imports a library before it is needed, since they are extras.
"""

from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.opening import KafkaSource

__all__ = ["KafkaSource", "KafkaSourceModel"]
