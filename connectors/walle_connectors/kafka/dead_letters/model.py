"""Keys under ``spec.deadLetters`` of the connector ``kafka``."""

from typing import Final

from pydantic import Field

from walle_connectors.brokers import Connection, TopicName
from walle_connectors.kafka.tunnel_model import Codec
from walle_stream.spec.scalars import SizeBytes

_MIB: Final = 1024 * 1024


class KafkaDeadLetterModel(Connection):
    """A topic for dead letters, with any number of partitions; pipelines may share it."""

    topic: TopicName = Field(description="For dead letters; one record each.")
    codec: Codec = Field(default="zstd", description="Compression of batches of records.")
    max_bytes: SizeBytes = Field(
        default=_MIB,
        ge=16 * 1024,
        le=_MIB,
        description="The topic's max.message.bytes or less; letters are cut to this size.",
    )
