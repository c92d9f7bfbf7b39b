"""Keys under ``spec.sinks`` of the connector ``kafka``."""

from typing import Final

from pydantic import Field

from walle_connectors.brokers import Connection, TopicName
from walle_connectors.kafka.tunnel_model import Codec
from walle_stream.spec.scalars import SizeBytes
from walle_stream.wire.record import ValueFormat

_MIB: Final = 1024 * 1024


class KafkaSinkModel(Connection):
    """A topic for merged features, with any number of partitions; of one pipeline alone."""

    topic: TopicName = Field(description="For merged features; one record each.")
    format: ValueFormat = Field(default="json", description="What features travel as.")
    codec: Codec = Field(default="zstd", description="Of batches of records in the topic.")
    max_bytes: SizeBytes = Field(
        default=_MIB,
        ge=1024,
        le=64 * _MIB,
        description="Largest record; the topic's max.message.bytes must be as large.",
    )
