"""Fresh topics for each case, made before and deleted behind it."""

import secrets
from contextlib import contextmanager

from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.topics import NeededTopic, create_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel


@contextmanager
def fresh_model(address, partitions=5, **keys):
    name = f"walle-test-{secrets.token_hex(6)}"
    model = KafkaTunnelModel(brokers=address, topic=name, down_topic=f"{name}-down", **keys)
    needed = [
        NeededTopic(each, "test", partitions, model.max_bytes)
        for each in (model.topic, model.down_topic)
    ]
    create_topics(model, needed)
    try:
        yield model
    finally:
        with admin_client(model) as admin:
            admin.delete_topics([each.name for each in needed], raise_errors=False)
