"""The YAML keys of a mapping from rows to events.

Everything that needs no row is checked, so that ``walle validate`` finds it: the keys and
the syntax of expressions here, and their types in ``model``.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from walle_stream.events import Kind
from walle_stream.reading.mapping.expressions import (
    EXPRESSION_MAX_CHARACTERS,
    parse_expression,
)
from walle_stream.reading.mapping.layout import ColumnType
from walle_stream.spec.strict import Strict


def _literal_text(value: Any) -> Any:
    # YAML parses 0 and true as values; as expressions they are the same literals
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
"""An expression in the language of ``expressions``."""

type Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=100)]
"""A name that expressions can use."""


class EachModel(Strict):
    """Repetition of an event for every value of a list."""

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
    """An event that a row may give."""

    kind: Kind = Field(description="One of the five basic kinds.")
    when: Expression | None = Field(
        default=None, description="Condition; only rows that meet it give the event."
    )
    each: EachModel | None = Field(
        default=None, description="Repeat the event for every value of a list."
    )
    at: Expression | None = Field(
        default=None, description="Event time, epoch milliseconds; the row's time when left out."
    )
    page: Expression = Field(description="Page id; text in quotes, for example \"'home'\".")
    instance: Expression | None = Field(
        default=None, description="Id of the visit of the page; the latest visit when left out."
    )
    id: Expression | None = Field(
        default=None, description="Event id that triggers match; the kind when left out."
    )
    uid: Expression | None = Field(
        default=None, description="Identity; a second event with the same one is a duplicate."
    )
    contents: dict[str, Expression] = Field(
        default_factory=dict, description="Item, widget and free fields."
    )


class RowKeys(Strict):
    """Format of rows and their events; ``RowMapping`` before it is compiled."""

    format: Literal["csv", "jsonl"] = Field(
        default="jsonl", description="Format of a row: a JSON object, or a line of CSV."
    )
    delimiter: str = Field(default=",", description="CSV: separator of columns.")
    quote: str = Field(default='"', description="CSV: quotation mark; empty turns quoting off.")
    columns: dict[str, ColumnType] = Field(
        default_factory=dict, description="CSV: types of columns; other columns are text."
    )
    explode: str | None = Field(
        default=None,
        min_length=1,
        description="JSON: a list in the record whose objects are the rows.",
    )
    let: dict[Name, Expression] = Field(
        default_factory=dict, description="Computed values by name."
    )
    device: Expression | None = Field(
        default=None, description="Device id; the record's key when left out."
    )
    time: Expression | None = Field(
        default=None, description="The row's time, epoch milliseconds; the record's when left out."
    )
    # the length is checked below, because pydantic would report it with every inner error
    events: tuple[EventModel, ...] = Field(
        description="Events of a row, in order.", json_schema_extra={"minItems": 1}
    )

    @property
    def row_identity(self) -> tuple[str, ...]:
        """Expressions that identify a row, to find duplicates; without any, no row is one."""
        return ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.format == "jsonl":
            layout_keys = self.model_fields_set & {"columns", "delimiter", "quote"}
            if layout_keys:
                raise ValueError(f"{', '.join(sorted(layout_keys))}: only for format csv")
        elif self.explode is not None:
            raise ValueError("explode: only for format jsonl")
        if len(self.delimiter) != 1 or self.delimiter in "\r\n":
            raise ValueError(f"delimiter: {self.delimiter!r} is not one character of a line")
        if len(self.quote) > 1 or self.quote in {self.delimiter, "\r", "\n"}:
            raise ValueError(f"quote: {self.quote!r} is not one character beside the delimiter")
        if not self.events:
            raise ValueError("events: a source without events gives nothing: declare one")
        return self
