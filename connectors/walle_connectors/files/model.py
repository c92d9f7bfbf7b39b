"""The YAML keys of a file source: the file, the mapping of rows to events, and their order."""

from typing import Final, Literal, override

from pydantic import Field

from walle_stream.reading.mapping.keys import Expression
from walle_stream.reading.mapping.model import RowMapping
from walle_stream.spec.paths import InputField
from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_RECORD_MAX_BYTES: Final = 2**30


class OrderModel(Strict):
    """Order of the source's events."""

    scope: Literal["global", "device"] = Field(
        default="device",
        description=(
            "device: the rows of each device are in order, and its clock does not affect other "
            "devices; global: the file is sorted by time as a whole."
        ),
    )
    lateness: DurationMs = Field(
        default=0,
        ge=0,
        description="Longest delay of a row, for example 10s; events wait this long.",
    )
    """Milliseconds."""


class FilesModel(RowMapping):
    """Keys of ``spec.source`` when its connector is ``files``."""

    path: InputField = Field(
        description="The file; gzip is detected by content; or parts: a folder or URL."
    )
    format: Literal["csv", "jsonl"] = Field(description="CSV with a header line, or JSON Lines.")
    device: Expression = Field(description="Device id.")
    time: Expression = Field(description="The row's time, epoch milliseconds.")
    identity: tuple[Expression, ...] = Field(
        default=(), description="A row whose values were seen before is a duplicate."
    )
    order: OrderModel = Field(default_factory=OrderModel, description="Order of events.")
    max_record_bytes: SizeBytes = Field(
        default=2**20,
        ge=64,
        le=_RECORD_MAX_BYTES,
        description="Longest record, for example 1MiB; longer ones become dead letters.",
    )

    @override
    @property
    def row_identity(self) -> tuple[str, ...]:
        """Expressions of the identity; see ``RowMapping``."""
        return self.identity
