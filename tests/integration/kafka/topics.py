"""Topics of one broker for tests: made, written, deleted."""

import json
import uuid
from contextlib import contextmanager

from kafka.admin import KafkaAdminClient, NewTopic

from kafka import KafkaProducer, TopicPartition

FLUSH_S = 60


class Topics:
    """Makes topics of one broker, writes to them, and deletes them in the end."""

    def __init__(self, address):
        self.address = address
        self._producer = KafkaProducer(
            bootstrap_servers=address, acks="all", enable_idempotence=True
        )
        self._made = []

    def make(self, partitions=4, name=None, **settings):
        name = name or f"source-{uuid.uuid4().hex[:12]}"
        with self._admin() as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        self._made.append(name)
        self._producer.partitions_for(name)  # the broker may hear of it a moment later
        return name

    def delete(self, name):
        with self._admin() as admin:
            admin.delete_topics([name])

    def grow(self, name, partitions):
        with self._admin() as admin:
            admin.create_partitions({name: partitions})

    def delete_before(self, name, partition, offset):
        with self._admin() as admin:
            admin.delete_records({TopicPartition(name, partition): offset})

    def write(self, name, rows):
        """Write (key, value, partition or None, timestamp or None); dictionaries become JSON."""
        for key, value, *rest in rows:
            partition, timestamp_ms = [*rest, None, None][:2]
            self._producer.send(
                name,
                json.dumps(value).encode() if isinstance(value, dict) else value,
                key=key.encode() if isinstance(key, str) else key,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        self._producer.flush(FLUSH_S)

    def close(self, *, keeps=False):
        if self._made and not keeps:
            with self._admin() as admin:
                admin.delete_topics(self._made, raise_errors=False)
        self._producer.close()

    @contextmanager
    def _admin(self):
        # each time another one: tests kill the broker, and a client that saw that stays confused
        client = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            yield client
        finally:
            client.close()
