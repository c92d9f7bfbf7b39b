"""The syntax of expressions in the source's YAML.

An expression has Python's syntax and only white-listed nodes:

- names (columns and ``let`` values) and literals;
- ``+ - * / // %``, comparisons, ``in`` and ``not in`` a list of literals;
- ``and or not``, ``a if c else b``, a constant index or key (``x[0]``, ``x["key"]``);
- calls of the functions below.

There are no attributes, no loops and no other calls. Text is never executed:
``translate`` turns the tree that this module accepts into the tree of the row function.

Functions:

- ``int float str len abs lower upper strip`` of one value;
- ``round(x[, digits])``, ``min`` and ``max`` of two or more, ``split(text, separator)``;
- ``get("name"[, default])`` for a column or field that may be missing or null;
- ``get(value, "name"[, default])`` for such a part of an object or list;
- ``timestamp(text)`` for the epoch milliseconds of an ISO 8601 date and time;
- ``flags(name=condition, ...)`` for the list of the names whose condition holds.

``docs/sources.md`` is the user's page.
"""

import ast
import math
import warnings
from collections.abc import Mapping
from typing import Final

EXPRESSION_MAX_CHARACTERS: Final = 1_000
"""Longest expression; it also bounds every literal."""

_MAX_DEPTH: Final = 40
_MAX_INT: Final = 2**63 - 1
_MAX_DIGITS: Final = 15
_MAX_ARGUMENTS: Final = 64

FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "int": (1, 1),
    "float": (1, 1),
    "str": (1, 1),
    "len": (1, 1),
    "abs": (1, 1),
    "lower": (1, 1),
    "upper": (1, 1),
    "strip": (1, 1),
    "round": (1, 2),
    "min": (2, _MAX_ARGUMENTS),
    "max": (2, _MAX_ARGUMENTS),
    "split": (2, 2),
    "get": (1, 3),
    "timestamp": (1, 1),
    "flags": (0, 0),
}
"""Allowed functions with their smallest and largest number of positional arguments."""

_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_UNARY: Final = (ast.USub, ast.UAdd, ast.Not)
_COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class ExpressionError(ValueError):
    """An expression is not in the language; the message has the position.

    The validation of a definition catches it and adds the YAML key.
    """

    def __init__(self, message: str, node: ast.AST | None = None) -> None:
        """Put the node's position into the message."""
        column = getattr(node, "col_offset", None)
        super().__init__(message if column is None else f"position {column + 1}: {message}")


def literals(text: str) -> set[str] | None:
    """Return the possible texts of an expression; None if they depend on the row."""

    def found(node: ast.expr) -> set[str] | None:
        match node:
            case ast.Constant(value=str(value)):
                return {value}
            case ast.IfExp(body=body, orelse=orelse):
                ways = (found(body), found(orelse))
                return None if None in ways else set().union(*(way or () for way in ways))
        return None

    return found(parse_expression(text))


def parse_expression(text: str) -> ast.expr:
    """Parse an expression of YAML to a tree of allowed nodes only.

    Raises:
        ExpressionError: The text is not an expression of the language.
    """
    if not text.strip():
        raise ExpressionError("the expression is empty")
    if len(text) > EXPRESSION_MAX_CHARACTERS:
        raise ExpressionError(
            f"the expression has {len(text)} characters, at most "
            f"{EXPRESSION_MAX_CHARACTERS} are allowed: compute parts of it under let"
        )
    # one line without indent, so that columns of the tree are positions in the text
    line = " ".join(text.splitlines())
    body = line.lstrip()
    indent = len(line) - len(body)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(body, mode="eval").body
    except SyntaxError as error:
        position = (error.offset or 1) + indent
        raise ExpressionError(f"position {position}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"it cannot be parsed: {error}") from None
    if indent:
        for node in ast.walk(tree):
            if isinstance(node, ast.expr):
                node.col_offset += indent
    _check(tree, 0)
    return tree


def _check(node: ast.AST, depth: int) -> None:  # noqa: C901, PLR0912 - one case per node type
    if depth > _MAX_DEPTH:
        raise ExpressionError("it is nested too deeply: compute parts of it under let", node)
    match node:
        case ast.Name():
            return
        case ast.Constant():
            _check_constant(node)
        case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
            _check(node.left, depth + 1)
            _check(node.right, depth + 1)
        case ast.UnaryOp(op=op) if isinstance(op, _UNARY):
            _check(node.operand, depth + 1)
        case ast.BoolOp():
            for value in node.values:
                _check(value, depth + 1)
        case ast.IfExp():
            for part in (node.test, node.body, node.orelse):
                _check(part, depth + 1)
        case ast.Compare():
            _check_compare(node, depth + 1)
        case ast.Subscript():
            _check(node.value, depth + 1)
            _check_index(node.slice)
        case ast.Call():
            _check_call(node, depth + 1)
        case _:
            raise ExpressionError(f"{_kind(node)} is not allowed here", node)


def _check_constant(node: ast.Constant) -> None:
    value = node.value
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int) and value <= _MAX_INT:
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    if isinstance(value, str) and _is_unicode(value):
        return
    raise ExpressionError(f"the literal {ast.unparse(node)[:40]} is not allowed", node)


def _check_compare(node: ast.Compare, depth: int) -> None:
    _check(node.left, depth)
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            _check_members(right, depth)
        elif isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise ExpressionError("'is' may only be followed by None: use ==", right)
        elif isinstance(op, _COMPARISONS):
            _check(right, depth)


def _check_members(node: ast.expr, depth: int) -> None:
    if not isinstance(node, ast.List | ast.Tuple):
        _check(node, depth)
        return
    for member in node.elts:
        if not isinstance(member, ast.Constant):
            raise ExpressionError("a list after 'in' may only have literals", member)
        _check_constant(member)


def _check_index(node: ast.expr) -> None:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    is_sign = not isinstance(node, ast.UnaryOp) or isinstance(node.op, ast.USub)
    if not (is_sign and isinstance(inner, ast.Constant) and type(inner.value) in {int, str}):
        raise ExpressionError("an index must be a literal number or text", node)
    if inner is not node and isinstance(inner.value, str):
        raise ExpressionError("an index must be a literal number or text", node)
    _check_constant(inner)


def _check_call(node: ast.Call, depth: int) -> None:
    function = node.func
    if not isinstance(function, ast.Name) or function.id not in FUNCTIONS:
        raise ExpressionError(
            f"a call of {ast.unparse(function)[:40]!r} is not allowed; functions are "
            f"{', '.join(FUNCTIONS)}",
            node,
        )
    name = function.id
    fewest, most = FUNCTIONS[name]
    if not fewest <= len(node.args) <= most:
        wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
        raise ExpressionError(f"{name}() takes {wanted} values, not {len(node.args)}", node)
    for argument in node.args:
        _check(argument, depth)
    _check_keywords(node, depth)
    if name == "get":
        _check_get(node)
    if name == "round" and len(node.args) == 2:  # noqa: PLR2004 - value and digits
        digits = node.args[1]
        if not (isinstance(digits, ast.Constant) and type(digits.value) is int):
            raise ExpressionError("round() takes the digits as a literal number", digits)
        if digits.value > _MAX_DIGITS:
            raise ExpressionError(f"round() takes at most {_MAX_DIGITS} digits", digits)


def _check_get(node: ast.Call) -> None:
    if _is_text(node.args[0]):
        if len(node.args) > 2:  # noqa: PLR2004 - name and default
            raise ExpressionError("get('column') takes a default and no more", node)
    elif len(node.args) < 2:  # noqa: PLR2004 - value and name
        raise ExpressionError("get() takes a column's name, or a value and a name in it", node)
    else:
        _check_index(node.args[1])


def _check_keywords(node: ast.Call, depth: int) -> None:
    if not node.keywords and ast.unparse(node.func) != "flags":
        return
    if ast.unparse(node.func) != "flags":
        raise ExpressionError("only flags() takes name=condition", node)
    if not 1 <= len(node.keywords) <= _MAX_ARGUMENTS:
        raise ExpressionError(f"flags() takes 1 to {_MAX_ARGUMENTS} name=condition", node)
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ExpressionError("flags() takes name=condition, not **", node)
        _check(keyword.value, depth)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(node: ast.AST) -> str:
    names = {
        ast.Attribute: "an attribute (a dot)",
        ast.Lambda: "lambda",
        ast.JoinedStr: "an f-string (use +)",
        ast.Starred: "*",
        ast.List: "a list",
        ast.Tuple: "a tuple",
        ast.Dict: "a dictionary",
        ast.NamedExpr: ":= (use let)",
        ast.BinOp: "this operator",
        ast.UnaryOp: "this operator",
    }
    return names.get(type(node), type(node).__name__)
