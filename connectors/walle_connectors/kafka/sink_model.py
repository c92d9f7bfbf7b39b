"""Keys under ``spec.sinks`` of the connector ``kafka``."""

from pydantic import Field

from walle_connectors.brokers import TopicName
from walle_connectors.kafka.tunnel_model import FeatureTopicModel


class KafkaSinkModel(FeatureTopicModel):
    """A topic for one pipeline's merged features, with any number of partitions."""

    topic: TopicName = Field(description="For merged features; one record each.")
