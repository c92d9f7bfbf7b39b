"""Topics of one partition, and how many bytes lie in them as the broker counts."""

import uuid
from contextlib import suppress
from typing import Any

from kafka.admin import NewTopic
from kafka.errors import KafkaError

from kafka import KafkaAdminClient
from walle_stream.testing.broker import round_trip


class Topics:
    """Makes topics; closing deletes them."""

    def __init__(self, brokers: str) -> None:
        """Connect.

        Args:
            brokers: ``host:port``.
        """
        self.brokers = brokers
        round_trip({"bootstrap_servers": brokers})
        self._admin: Any = KafkaAdminClient(bootstrap_servers=brokers)
        self._run = uuid.uuid4().hex[:8]
        self._made = 0

    def make(self, name: str) -> str:
        """Make a topic.

        Returns:
            Its name.
        """
        self._made += 1
        topic = f"{name}-{self._run}-{self._made}"
        self._admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        return topic

    def size_bytes(self, topic: str) -> int:
        """Return the bytes of a topic's log: batches as they came in.

        Args:
            topic: Of ``make``.
        """
        brokers = self._admin.describe_log_dirs([topic])
        return sum(
            partition["partition_size"]
            for broker in brokers
            for folder in broker["log_dirs"]
            for found in folder["topics"]
            if found["name"] == topic
            for partition in found["partitions"]
        )

    def close(self) -> None:
        """Delete what was made, and what the cloud side made for it."""
        with suppress(KafkaError):
            made = [each for each in self._admin.list_topics() if self._run in each]
            self._admin.delete_topics(made)
        self._admin.close()

    @property
    def run(self) -> str:
        """In all names."""
        return self._run
