"""The YAML keys of a file source: where the file is and how rows become events.

Everything that can be checked without the file is checked here, so that
``walle validate`` finds it: the keys, every expression's syntax and types.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from walle_connectors.files.expressions import EXPRESSION_MAX_CHARACTERS, parse_expression
from walle_connectors.files.mapping import check_mapping
from walle_stream.events import Kind
from walle_stream.spec.models import PathField
from walle_stream.spec.scalars import DurationMs, SizeBytes
from walle_stream.spec.strict import Strict

_RECORD_MAX_BYTES: Final = 2**30


def _literal_text(value: Any) -> Any:
    # YAML reads 0 and true as values: as expressions they are the same literals
    return repr(value) if isinstance(value, bool | int | float) else value


def _checked(text: str) -> str:
    parse_expression(text)
    return text


type Expression = Annotated[
    str,
    BeforeValidator(_literal_text),
    AfterValidator(_checked),
    Field(max_length=EXPRESSION_MAX_CHARACTERS),
]
"""Text in the language of ``expressions``."""

type Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=100)]
"""A name that expressions can use."""


class EachModel(Strict):
    """Repeats an event for every value of a list."""

    name: Name = Field(description="Name of the value in the event's expressions.")
    in_: Expression = Field(alias="in", description="The list.")
    index: Name | None = Field(
        default=None, description="Name of the value's number in the list, counted from 1."
    )

    @model_validator(mode="after")
    def _is_unambiguous(self) -> Self:
        if self.index == self.name:
            raise ValueError(f"name and index are both {self.name!r}")
        return self


class EventModel(Strict):
    """One event that a row may give."""

    kind: Kind = Field(description="Which of the five basic kinds.")
    when: Expression | None = Field(
        default=None, description="Only rows for which this holds give the event."
    )
    each: EachModel | None = Field(
        default=None, description="Repeat the event for every value of a list."
    )
    at: Expression | None = Field(
        default=None, description="Event time, epoch milliseconds; the row's time when left out."
    )
    page: Expression = Field(description="Page id; text in quotes, for example \"'home'\".")
    instance: Expression | None = Field(
        default=None, description="Which visit of the page; the latest one when left out."
    )
    id: Expression | None = Field(
        default=None, description="Event id that triggers match; the kind when left out."
    )
    uid: Expression | None = Field(
        default=None, description="Identity of the occurrence: a second one is a duplicate."
    )
    contents: dict[str, Expression] = Field(
        default_factory=dict, description="Item, widget and free fields."
    )


class OrderModel(Strict):
    """In which order events leave the source."""

    scope: Literal["global", "device"] = Field(
        default="device",
        description=(
            "device: the rows of each device are in order among themselves, one device's clock "
            "moves no other; global: the file is sorted by time as a whole."
        ),
    )
    lateness: DurationMs = Field(
        default=0,
        ge=0,
        description="How far behind rows may come, for example 10s: events wait so long.",
    )
    """Milliseconds."""


class FilesModel(Strict):
    """Keys of ``spec.source`` when its connector is ``files``."""

    path: PathField = Field(description="The file; gzip is recognised by its content.")
    format: Literal["csv", "jsonl"] = Field(description="CSV with a header line, or JSON Lines.")
    delimiter: str = Field(default=",", description="CSV: what separates columns.")
    quote: str = Field(
        default='"', description="CSV: the quotation mark; empty when quotes mean nothing."
    )
    columns: dict[str, Literal["str", "int", "float", "bool"]] = Field(
        default_factory=dict, description="CSV: types of columns; those not listed are text."
    )
    explode: str | None = Field(
        default=None,
        min_length=1,
        description="JSON Lines: a list in the record whose objects are the rows.",
    )
    let: dict[Name, Expression] = Field(
        default_factory=dict, description="Computed values by name."
    )
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
    # the length is checked below: pydantic would report it beside every error inside, too
    events: tuple[EventModel, ...] = Field(
        description="Events of a row, in order.", json_schema_extra={"minItems": 1}
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.format == "jsonl":
            given = self.model_fields_set & {"columns", "delimiter", "quote"}
            if given:
                raise ValueError(f"{', '.join(sorted(given))}: only for format csv")
        elif self.explode is not None:
            raise ValueError("explode: only for format jsonl")
        if len(self.delimiter) != 1 or self.delimiter in "\r\n":
            raise ValueError(f"delimiter: {self.delimiter!r} is not one character of a line")
        if len(self.quote) > 1 or self.quote in {self.delimiter, "\r", "\n"}:
            raise ValueError(f"quote: {self.quote!r} is not one character beside the delimiter")
        if not self.events:
            raise ValueError("events: a source without events gives nothing: declare one")
        check_mapping(self)
        return self
