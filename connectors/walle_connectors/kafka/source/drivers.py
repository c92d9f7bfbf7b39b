"""Which library reads a topic: ``spec.source.driver``, or the tunnel's."""

from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.confluent import ConfluentFetcher
from walle_connectors.kafka.source.confluent_group import ConfluentGroup
from walle_connectors.kafka.source.fetching import Fetcher, PythonFetcher
from walle_connectors.kafka.source.group import Group
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.python_group import PythonGroup


def open_fetcher(client: TopicClient, model: KafkaSourceModel, *, has_headers: bool) -> Fetcher:
    """Open a fetcher of partitions that nobody else has; its client stays the caller's."""
    if model.driver == "kafka-python":
        return PythonFetcher(client, has_headers=has_headers)
    client.watch()
    return ConfluentFetcher(model, has_headers=has_headers)


def open_group(client: TopicClient, model: KafkaSourceModel, *, has_headers: bool) -> Group:
    """Open a member of the model's group, which joins later; the client was made for one."""
    if model.driver == "kafka-python":
        return PythonGroup(client, model.poll_interval_ms, has_headers=has_headers)
    client.watch()
    return ConfluentGroup(model, has_headers=has_headers)
