"""Compiles the mapping of a source to one Python function per row.

The function is built as a syntax tree: constant statement templates of this
module, filled with translated expressions (``translate``). It sees only the names
of ``functions.RUNTIME``. Unneeded values are not computed: a column is converted,
and a ``let`` value computed, at the first expression of the row that needs it.

Every expression has its own line in the function. So the traceback of a failure
gives the YAML key, without any cost for rows that succeed.
"""

import ast
from collections.abc import Callable, Mapping
from copy import deepcopy
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, cast, override

import msgspec

from walle_stream.events import Event
from walle_stream.reading.mapping.expressions import ExpressionError, parse_expression
from walle_stream.reading.mapping.functions import BIG, INT_MAX, RUNTIME
from walle_stream.reading.mapping.layout import CsvLayout, JsonLayout, RowLayout
from walle_stream.reading.mapping.translate import Translator, Typed, ValueType, call
from walle_stream.types import TIME_MAX_MS

if TYPE_CHECKING:
    from walle_stream.reading.mapping.keys import EventModel, RowKeys

_REASON_MAX: Final = 300


class InvalidRow(msgspec.Struct, frozen=True):
    """A row that cannot become events."""

    reason: str
    """The YAML key and the failure."""
    error: str
    """Class of the exception."""
    device_id: str | None = None
    """The device, if it could be computed."""
    known: tuple[int, Any] | None = None
    """Time and identity, if they are valid and only an event failed."""


type RowResult = tuple[str, int, Any, list[Event], list[tuple[int, Event]]] | InvalidRow
"""Device, time, identity (None when not declared), the events at the row's
time in order, and the other events in order, each with its time."""


class MappingError(ValueError):
    """An expression cannot be compiled; the message names its YAML key."""


def compile_mapping(
    model: "RowKeys", layout: RowLayout, *, has_record: bool = False
) -> Callable[[Any], RowResult]:
    """Build the function for a row from ``records``; the function does not raise.

    ``layout`` finds the values of columns in a row, and learns the used columns. With
    ``has_record`` a row is a tuple of the row itself, its record's key (text) and time.

    Raises:
        MappingError: An expression is wrong.
    """
    layout.has_record = has_record
    return _Compiler(model, layout).build()


def check_mapping(model: "RowKeys") -> None:
    """Check every expression of a mapping without rows."""
    layout: RowLayout = CsvLayout(model.columns, None)
    if model.format == "jsonl":
        layout = JsonLayout(model.explode)
    layout.has_record = True  # for a device or time that is left out
    compiler = _Compiler(model, layout)
    compiler.build()
    for name in model.let:  # also values that no event uses
        compiler.compute_let(name, _Block([], {}))


class _Block:
    def __init__(
        self, body: list[ast.stmt], bound: dict[str, Typed], each: frozenset[str] = frozenset()
    ) -> None:
        self.body = body
        self.bound = bound
        self.each = each
        self.blocks: dict[str, dict[str, Typed]] = {}


class _Names(Translator):
    """Translator of one expression, which hoists the values that every row needs."""

    def __init__(self, compiler: "_Compiler", block: _Block, key: str) -> None:
        self._compiler = compiler
        self._block = block
        self._key = key

    @override
    def value(self, name: str, node: ast.expr, *, is_sure: bool) -> Typed:
        block, compiler = self._block, self._compiler
        if name not in block.bound:
            is_let = name in compiler.lets
            if is_let and not compiler.is_computing(name, node):
                block.bound[name] = compiler.compute_let(name, block)
            else:
                loaded, type_ = self._load(name, node)
                if is_let or not is_sure:
                    return loaded, type_
                local = compiler.fresh("c")
                key = f"column {name}" if compiler.layout.has_types else self._key
                compiler.emit(block, key, "N = V", N=_store(local), V=loaded)
                block.bound[name] = _load(local), type_
        value, type_ = block.bound[name]
        return deepcopy(value), type_

    def _load(self, name: str, node: ast.expr) -> Typed:
        try:
            return self._compiler.layout.load(name, self.temporary)
        except LookupError as error:
            raise ExpressionError(str(error.args[0]), node) from None

    @override
    def optional(self, name: str, node: ast.expr) -> Typed:
        try:
            return self._compiler.layout.load_optional(name, self.temporary)
        except LookupError as error:
            raise ExpressionError(str(error.args[0]), node) from None

    @override
    def temporary(self) -> str:
        return self._compiler.fresh("w")


class _Compiler:
    def __init__(self, model: "RowKeys", layout: RowLayout) -> None:
        self.layout = layout
        self.lets = dict(model.let)
        self._model = model
        self._keys: list[str] = []
        self._count = 0
        self._open_lets: list[str] = []

    # The function as a whole

    def build(self) -> Callable[[Any], RowResult]:
        block = _Block([], {})
        self.emit(block, "", self.layout.prologue())
        self._header(block)
        for number, event in enumerate(self._model.events):
            self._event(block, f"events[{number}]", event)
        self.emit(block, "", "return d, t, i, now, timed")
        (function,) = self._template(
            """
            def row(fields):
                d = t = i = now = None
                try:
                    pass
                except ROW_ERRORS as error:
                    return failed(error, d, t, i, now)
            """,
            "",
        )
        cast("ast.Try", cast("ast.FunctionDef", function).body[1]).body = block.body
        code = compile(ast.Module([function], []), "<row function>", "exec")
        names: dict[str, Any] = {
            **RUNTIME,
            **self.layout.constants,
            "Event": Event,
            "failed": self._failure_handler(),
            "__builtins__": {},
        }
        exec(code, names)  # noqa: S102 - a tree of white-listed nodes, built here
        return cast("Callable[[Any], RowResult]", names["row"])

    def _header(self, block: _Block) -> None:
        model = self._model
        if model.device is None:
            self.emit(block, "", "d = k")
        else:
            self._text(block, "device", model.device, "d")
        if model.time is None:
            self.emit(block, "", "t = g")
        else:
            self._time(block, "time", model.time, "t")
        parts = [
            self._scalar(block, f"identity[{number}]", text)
            for number, text in enumerate(model.row_identity)
        ]
        if parts:
            value = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
            self.emit(block, "identity", "i = V", V=value)
        self.emit(block, "", "now = []\ntimed = []")

    def _event(self, block: _Block, key: str, event: "EventModel") -> None:
        if event.each is None:
            self._one_event(block, key, event)
            return
        each = event.each
        values, type_ = self._expression(block, f"{key}.each.in", each.in_)
        if type_ not in {"list", "strs", "any"}:
            raise MappingError(f"{key}.each.in: it is not a list")
        name, index = self.fresh("x"), self.fresh("x")
        if type_ == "any":
            values = call("to_list", values)
        values = self._bind(block, f"{key}.each.in", values)
        loop = self.emit(
            block,
            f"{key}.each.in",
            "if V:\n    for I, N in enumerate(short(V), 1):\n        pass",
            I=_store(index),
            N=_store(name),
            V=values,
        )
        body = cast("ast.For", cast("ast.If", loop[0]).body[0]).body
        body.clear()
        element_type: ValueType = "str" if type_ == "strs" else "any"
        bound: dict[str, Typed] = {each.name: (_load(name), element_type)}
        if each.index is not None:
            bound[each.index] = _load(index), "int"
        inner = _Block(body, {**block.bound, **bound}, frozenset(bound))
        self._one_event(inner, key, event)

    def _one_event(self, block: _Block, key: str, event: "EventModel") -> None:
        if event.when is not None:
            test, _ = self._expression(block, f"{key}.when", event.when)
            branch = self.emit(block, f"{key}.when", "if V:\n    pass", V=test)
            body = cast("ast.If", branch[0]).body
            body.clear()
            # a block with the same condition runs exactly when this one runs, so it may use
            # the values computed here
            bound = block.blocks.setdefault(event.when, {})
            bound.update(block.bound)
            block = _Block(body, bound, block.each)
        at: ast.expr = _load("t")
        if event.at is not None:
            at = self._time(block, f"{key}.at", event.at, self.fresh("w"))
        page = self._text(block, f"{key}.page", event.page, self.fresh("w"), is_empty_refused=True)
        id_: ast.expr = ast.Constant(event.kind)
        if event.id is not None:
            id_ = self._text(block, f"{key}.id", event.id, self.fresh("w"), is_empty_refused=True)
        parts = {
            "ID": id_,
            "KIND": ast.Constant(event.kind),
            "PAGE": page,
            "INSTANCE": self._optional_text(block, f"{key}.instance", event.instance),
            "AT": at,
            "UID": self._optional_text(block, f"{key}.uid", event.uid),
            "CONTENTS": self._contents(block, f"{key}.contents", event.contents),
        }
        ingest = "g" if self.layout.has_record else "t"
        constructor = f"Event(d, ID, KIND, PAGE, INSTANCE, AT, {ingest}, CONTENTS, UID)"
        if event.at is None:
            self.emit(block, key, f"now.append({constructor})", **parts)
        else:
            source = f"e = {constructor}\nif AT == t:\n    now.append(e)\n"
            source += "else:\n    timed.append((AT, e))"
            self.emit(block, key, source, **parts)

    def _contents(self, block: _Block, key: str, contents: Mapping[str, str]) -> ast.Dict:
        values: list[ast.expr] = []
        for name, text in contents.items():
            inner_key = f"{key}.{name}"
            value, type_ = self._expression(block, inner_key, text)
            if isinstance(value, ast.Constant) or type_ in {"str", "bool", "none"}:
                values.append(self._bind(block, inner_key, value))
            elif type_ == "int":
                local = self._bind(block, inner_key, value)
                check = f"if not {-INT_MAX} <= V <= {INT_MAX}:\n    bad({BIG!r})"
                self.emit(block, inner_key, check, V=deepcopy(local))
                values.append(local)
            else:
                values.append(self._bind(block, inner_key, call("plain", value)))
        return ast.Dict([ast.Constant(name) for name in contents], values)

    # Parts of a row

    def _text(
        self, block: _Block, key: str, text: str, local: str, *, is_empty_refused: bool = False
    ) -> ast.expr:
        value, type_ = self._expression(block, key, text)
        if type_ not in {"str", "int", "any"}:
            raise MappingError(f"{key}: it is not text: use str(...)")
        if isinstance(value, ast.Constant) and value.value and type_ == "str" and local != "d":
            return value
        if type_ != "str":
            value = call("str" if type_ == "int" else "to_text", value)
        self.emit(block, key, "N = V", N=_store(local), V=value)
        if is_empty_refused:
            self.emit(block, key, "if not N:\n    bad('it is empty')", N=_load(local))
        return _load(local)

    def _optional_text(self, block: _Block, key: str, text: str | None) -> ast.expr:
        if text is None:
            return ast.Constant("")
        value, type_ = self._expression(block, key, text)
        if type_ not in {"str", "int", "any", "none"}:
            raise MappingError(f"{key}: it is not text: use str(...)")
        if type_ != "str":
            value = call("str" if type_ == "int" else "optional_text", value)
        return self._bind(block, key, value)

    def _time(self, block: _Block, key: str, text: str, local: str) -> ast.expr:
        value, type_ = self._expression(block, key, text)
        if type_ not in {"int", "any"}:
            raise MappingError(
                f"{key}: it is not an integer of milliseconds: give the column the type int, "
                "or use int(...), or timestamp(...) for ISO 8601 text"
            )
        self.emit(block, key, "N = V", N=_store(local), V=value)
        is_int = "" if type_ == "int" else "type(N) is not int or "
        check = f"if {is_int}not 0 <= N <= {TIME_MAX_MS}:\n    bad_time(N)"
        self.emit(block, key, check, N=_load(local))
        return _load(local)

    def _scalar(self, block: _Block, key: str, text: str) -> ast.expr:
        value, type_ = self._expression(block, key, text)
        if type_ in {"list", "strs"}:
            raise MappingError(f"{key}: a list cannot be part of the identity")
        return self._bind(block, key, call("scalar", value) if type_ == "any" else value)

    def _bind(self, block: _Block, key: str, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant | ast.Name):
            return value
        local = self.fresh("w")
        self.emit(block, key, "N = V", N=_store(local), V=value)
        return _load(local)

    def _expression(self, block: _Block, key: str, text: str) -> Typed:
        return self._translate(block, key, self._parse(key, text))

    def _parse(self, key: str, text: str) -> ast.expr:
        try:
            return parse_expression(text)
        except ExpressionError as error:
            raise MappingError(f"{key}: {error}") from error

    def _translate(self, block: _Block, key: str, tree: ast.expr) -> Typed:
        try:
            return _Names(self, block, key).translate(tree)
        except ExpressionError as error:
            raise MappingError(f"{key}: {error}") from error

    def is_computing(self, name: str, node: ast.expr) -> bool:
        """Return whether a ``let`` value's own expression names it, which means the column.

        Raises:
            ExpressionError: The value needs itself through another value.
        """
        if name in self._open_lets[:-1]:
            raise ExpressionError(f"let.{name} needs itself", node)
        return name in self._open_lets

    def compute_let(self, name: str, block: _Block) -> Typed:
        """Compute a ``let`` value in this block, before the current statement."""
        # an element of ``each`` has no meaning in a let value, so it is hidden meanwhile
        hidden = {name: block.bound.pop(name) for name in block.each if name in block.bound}
        self._open_lets.append(name)
        key = f"let.{name}"
        tree = self._parse(key, self.lets[name])
        value, type_ = self._translate(block, key, tree)
        self._open_lets.pop()
        block.bound.update(hidden)
        if type_ in {"str", "list", "any"} and _names_in(tree) & set(self.lets):
            value = call("bounded", value)  # otherwise values could double with each let
        local = self.fresh("v")
        self.emit(block, key, "N = V", N=_store(local), V=value)
        return _load(local), type_

    # Trees

    def fresh(self, prefix: str) -> str:
        """Return a new local name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, block: _Block, key: str, source: str, **parts: ast.expr) -> list[ast.stmt]:
        """Append statements to a block; their failures are reported under ``key``."""
        statements = self._template(source, key, **parts)
        block.body.extend(statements)
        return statements

    def _template(self, source: str, key: str, **parts: ast.expr) -> list[ast.stmt]:
        filled = _Filler(parts).visit(ast.parse(dedent(source)))
        if not self._keys or self._keys[-1] != key:
            self._keys.append(key)
        line = len(self._keys)
        for node in ast.walk(filled):
            if isinstance(node, ast.stmt | ast.expr | ast.excepthandler):
                node.lineno = node.end_lineno = line
                node.col_offset = node.end_col_offset = 0
        return cast("ast.Module", ast.fix_missing_locations(filled)).body

    def _failure_handler(self) -> Callable[..., InvalidRow]:
        keys = tuple(self._keys)

        def failed(
            error: BaseException, device: Any, time_ms: Any, identity: Any, events: Any
        ) -> InvalidRow:
            line = 0 if error.__traceback__ is None else error.__traceback__.tb_lineno
            key = keys[line - 1] if 0 < line <= len(keys) else ""
            text = str(error.args[0]) if error.args else type(error).__name__
            reason = f"{key}: {text}" if key else text
            return InvalidRow(
                " ".join(reason.split())[:_REASON_MAX],
                type(error).__name__,
                device if isinstance(device, str) else None,
                None if events is None else (time_ms, identity),
            )

        return failed


class _Filler(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._parts.get(node.id, node)


def _names_in(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())
