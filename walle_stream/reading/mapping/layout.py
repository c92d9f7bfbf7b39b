"""Places of the values of columns and fields in a row.

A CSV row is a list of texts. ``CsvLayout`` reads by position and converts to the
declared type. A JSON Lines row is a struct with only the fields that expressions
use. ``JsonLayout`` learns these fields while the mapping is compiled, and the
decoder skips all others.
"""

import ast
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Any, ClassVar, Literal, override

import msgspec

from walle_stream.reading.mapping.translate import Typed

type ColumnType = Literal["str", "int", "float", "bool"]
"""Types to which a column's text can be converted."""


class RowLayout(ABC):
    """Access of the row function to a row."""

    constants: ClassVar[Mapping[str, Any]] = {"UNSET": msgspec.UNSET}
    """Names that the loading expressions need."""
    has_types: ClassVar[bool]
    """Whether columns are converted, so that a column may cause a failure."""
    has_record = False
    """Whether a row comes with the key ``k`` and the time ``g`` of its record."""

    _row = "fields"  # names of a row's parts

    def prologue(self) -> str:
        """Return the first statement of the row function."""
        return f"{self._row}, k, g = fields" if self.has_record else f"{self._row} = fields"

    @abstractmethod
    def load(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a required value.

        Raises:
            LookupError: No row can have the value.
        """

    @abstractmethod
    def load_optional(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a value, null if it is missing."""


class CsvLayout(RowLayout):
    """Layout of rows that are lists of texts in the order of the header."""

    has_types = True

    def __init__(self, types: Mapping[str, ColumnType], header: Sequence[str] | None) -> None:
        """Keep types and header; columns without a declared type are text.

        Without a header, when only the definition is checked, any column may exist.
        """
        self._types = types
        self._header = header

    @override
    def load(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a column's value.

        Raises:
            LookupError: The header lacks the column, or has it twice.
        """
        header = self._header
        if header is None:
            return self._converted(name, 0)
        if name not in header:
            similar = difflib.get_close_matches(name, header, n=1)
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise LookupError(f"the file has no column {name!r}{hint}")
        if header.count(name) > 1:
            raise LookupError(f"the file has {header.count(name)} columns {name!r}")
        return self._converted(name, header.index(name))

    @override
    def load_optional(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a column's value; an empty cell counts as missing."""
        if self._header is not None and name not in self._header:
            return ast.Constant(None), "none"
        value, type_ = self.load(name, temporary)
        column = 0 if self._header is None else self._header.index(name)
        return ast.IfExp(_cell(column), value, ast.Constant(None)), type_

    def _converted(self, name: str, column: int) -> Typed:
        type_ = self._types.get(name, "str")
        if type_ == "str":
            return _cell(column), type_
        return ast.Call(ast.Name(type_, ast.Load()), [_cell(column)], []), type_


class JsonLayout(RowLayout):
    """Layout of rows that are structs with the used fields, or pairs of them when exploded."""

    has_types = False

    def __init__(self, explode: str | None) -> None:
        """Begin without fields; with ``explode``, the rows are the elements of that list."""
        self.explode = explode
        self._row = "r" if explode is None else "(r, p)"
        self.fields: dict[str, str] = {}
        """Attribute of the struct for each used field."""

    @override
    def load(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a field's value."""
        missing = ast.Call(ast.Name("missing", ast.Load()), [ast.Constant(name)], [])
        return self._field(name, temporary(), missing)

    @override
    def load_optional(self, name: str, temporary: Callable[[], str]) -> Typed:
        """Return an expression for a field's value, null if it is missing."""
        return self._field(name, temporary(), ast.Constant(None))

    def _field(self, name: str, local: str, otherwise: ast.expr) -> Typed:
        if name == self.explode:
            raise LookupError(f"{name!r} is the list under explode: its elements are the rows")
        attribute = self.fields.setdefault(name, f"f{len(self.fields)}")
        for record in ("r",) if self.explode is None else ("p", "r"):
            value = ast.Attribute(ast.Name(record, ast.Load()), attribute, ast.Load())
            test = ast.Compare(
                ast.NamedExpr(ast.Name(local, ast.Store()), value),
                [ast.IsNot()],
                [ast.Name("UNSET", ast.Load())],
            )
            otherwise = ast.IfExp(test, ast.Name(local, ast.Load()), otherwise)
        return otherwise, "any"

    def row_type(self) -> type[msgspec.Struct]:
        """Return the struct of a row with the fields used so far."""
        return msgspec.defstruct("Row", self._fields(), rename=self._names())

    def parent_type(self, element: type[msgspec.Struct]) -> type[msgspec.Struct]:
        """Return the struct of a record whose list has elements of this type."""
        elements: tuple[str, Any] = ("elements", GenericAlias(list, (element,)))
        names = self._names() | {"elements": self.explode or ""}
        return msgspec.defstruct("Record", [elements, *self._fields()], rename=names)

    def _fields(self) -> list[tuple[str, Any, Any]]:
        # null is an ordinary value; unset means that the record lacks the field
        return [(name, Any, msgspec.UNSET) for name in self.fields.values()]

    def _names(self) -> dict[str, str]:
        return {attribute: field for field, attribute in self.fields.items()}


def _cell(column: int) -> ast.Subscript:
    return ast.Subscript(ast.Name("fields", ast.Load()), ast.Constant(column), ast.Load())
