"""Keys under ``spec.tunnel`` of the connector ``kafka``."""

from typing import Annotated, Final, Literal

from pydantic import Field

from walle_connectors.brokers import Connection, TopicName
from walle_stream.spec.scalars import SizeBytes
from walle_stream.wire.record import ValueFormat

type Codec = Literal["zstd", "lz4", "gzip", "snappy", "none"]
"""Compression of batches of records."""

_MIB: Final = 1024 * 1024


class FeatureTopicModel(Connection):
    """A topic to which features are written."""

    topic: TopicName
    format: ValueFormat = Field(default="json", description="Encoding of features.")
    codec: Codec = Field(default="zstd", description="Compression of batches of records.")
    max_bytes: SizeBytes = Field(
        default=_MIB,
        ge=1024,
        le=64 * _MIB,
        description="Largest record; the topic's max.message.bytes must be as large.",
    )


class KafkaTunnelModel(FeatureTopicModel):
    """Topics for features and calls up, and for answers down.

    Both topics have as many partitions as the source, or ``spec.runtime.partitions``. Records of a
    partition, and the answers to them, use the topic's partition of the same number.
    """

    topic: TopicName = Field(description="For features and calls; one record each.")
    down_topic: TopicName | None = Field(
        default=None, description="For messages to devices; left out: devices get none."
    )
    linger_ms: Annotated[int, Field(strict=True, ge=0, le=60_000)] = Field(
        default=0, description="Longest wait for more records of a batch."
    )
    trace: bool = Field(
        default=False,
        strict=True,
        description="Add a W3C trace context, the same for every delivery of a record.",
    )

    @property
    def down_problem(self) -> str:
        """Reason why devices get no messages; empty if they do."""
        return "" if self.down_topic else "set spec.tunnel.downTopic"
