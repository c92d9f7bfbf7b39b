"""The YAML keys of a topic of events."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator

from walle_connectors.brokers import Connection, TopicName
from walle_stream.reading.mapping.model import RowMapping
from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_MIB: Final = 2**20

type MissingOffset = Literal["fail", "earliest", "latest"]
"""Policy for records that were deleted before they were read."""


def _time_ms(value: object) -> object:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"expected epoch milliseconds, or a date and time, found {value!r}"
            ) from None
    if isinstance(value, datetime):  # YAML parses an unquoted date and time to one
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    return value


class StartTime(Strict):
    """A moment on the clock of the records' timestamps."""

    timestamp_ms: Annotated[StrictInt, BeforeValidator(_time_ms)] = Field(
        alias="timestamp", ge=0, description="Epoch milliseconds, or ISO 8601 (UTC)."
    )


class KafkaSourceModel(Connection):
    """A topic of raw events, keyed by device."""

    connector: str = "kafka"
    topic: TopicName = Field(description="Events, keyed by device.")
    group: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Consumer group whose hosts share the partitions; left out: this run has all.",
    )
    start_at: Literal["earliest", "latest"] | StartTime = Field(
        default="earliest", description="Start of a partition that was never read."
    )
    stop_at_end: StrictBool = Field(
        default=False,
        description="Ends at the topic's end as of the first opening of its partitions.",
    )
    on_missing_offset: MissingOffset = Field(
        default="fail", description="Policy if retention deleted unread records."
    )
    max_record_bytes: SizeBytes = Field(
        default=_MIB, ge=64, le=2**30, description="A longer value is a dead letter."
    )
    connect_timeout_ms: DurationMs = Field(
        default=10_000,
        alias="connectTimeout",
        ge=100,
        le=600_000,
        description="Longest wait of a start for a broker.",
    )
    poll_interval_ms: DurationMs = Field(
        default=300_000,
        alias="pollInterval",
        ge=1_000,
        le=86_400_000,
        description="Longest time in which a host of a group gives a partition back.",
    )
    session_timeout_ms: DurationMs = Field(
        default=45_000,
        alias="sessionTimeout",
        ge=3_000,
        le=1_800_000,
        description="Longest silence of a host of a group before others get its partitions.",
    )
    mapping: RowMapping | None = Field(
        default=None,
        description="Maps values in a foreign format to events; left out: they are events.",
    )
    first_partitions: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="Reads only the first partitions of a topic that has grown by other means.",
    )
    trace: StrictBool = Field(
        default=False,
        description="Follow the records' trace context (header traceparent) to their features.",
    )

    @classmethod
    def of(cls, connection: Connection, topic: str) -> Self:
        """Return a topic at the brokers of another section, with default settings."""
        return cls.model_validate({**connection.reach(), "topic": topic})

    @model_validator(mode="after")
    def _has_all_of_a_group(self) -> Self:
        if self.group is not None and self.first_partitions is not None:
            raise ValueError("a group has all partitions: leave out `firstPartitions`")
        return self
