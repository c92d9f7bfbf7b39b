"""Translation of an allowed expression to the tree of the row function.

A subclass translates names. Types are inferred on the way. So an expression that
can never work (text times a number, a text column compared with a number) is an
error of the definition, and the row function checks only unknown types at run time.
"""

import ast
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Final, Literal

from walle_stream.reading.mapping.expressions import ExpressionError

type ValueType = Literal["int", "float", "bool", "str", "none", "list", "strs", "any"]
"""Inferred type of a value; ``strs`` is a list of texts, ``any`` is unknown."""

type Typed = tuple[ast.expr, ValueType]
"""A translated expression and the inferred type of its value."""

_NUMBERS: Final = frozenset({"int", "float", "bool"})
_LISTS: Final = frozenset({"list", "strs"})
_WORDS: Final = {
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "str": "text",
    "none": "null",
    "list": "a list",
    "strs": "a list",
    "any": "a value",
}
_RESULTS: Final[dict[str, ValueType]] = {
    "int": "int",
    "float": "float",
    "str": "str",
    "len": "int",
    "lower": "str",
    "upper": "str",
    "strip": "str",
    "split": "strs",
    "timestamp": "int",
}
_CALLED_FUNCTIONS_OF_TEXT: Final = frozenset({"lower", "upper", "strip", "split", "timestamp"})


class Translator(ABC):
    """Translator of the expressions of one place, where a subclass gives names their meaning."""

    @abstractmethod
    def value(self, name: str, node: ast.expr, *, is_sure: bool) -> Typed:
        """Return the value of a column or a computed value; ``node`` is for errors.

        ``is_sure`` means that the expression needs the value for every row.
        """

    @abstractmethod
    def optional(self, name: str, node: ast.expr) -> Typed:
        """Return a column's value, null if the row lacks it."""

    @abstractmethod
    def temporary(self) -> str:
        """Return a new local name."""

    def translate(  # noqa: C901, PLR0911 - one case per node type
        self, node: ast.expr, *, is_sure: bool = True
    ) -> Typed:
        """Translate a tree from ``parse_expression``, which stays unchanged.

        ``is_sure`` is False inside a branch that a row may not take.

        Raises:
            ExpressionError: The expression can never give a value.
        """
        match node:
            case ast.Name():
                return self.value(node.id, node, is_sure=is_sure)
            case ast.Constant():
                return ast.Constant(node.value), _type_of(node.value)
            case ast.BinOp():
                return self._binary(node, is_sure)
            case ast.UnaryOp():
                return self._unary(node, is_sure)
            case ast.BoolOp():
                return self._logical(node, is_sure)
            case ast.IfExp():
                return self._choice(node, is_sure)
            case ast.Compare():
                return self._comparison(node, is_sure)
            case ast.Subscript():
                value, type_ = self.translate(node.value, is_sure=is_sure)
                if type_ in _NUMBERS:
                    raise ExpressionError(f"{_WORDS[type_]} has no parts", node)
                part: ValueType = "str" if type_ in {"str", "strs"} else "any"
                return ast.Subscript(value, deepcopy(node.slice), ast.Load()), part
            case ast.Call():
                return self._call(node, is_sure)
            case _:
                raise ExpressionError(f"{type(node).__name__} is not allowed here", node)

    def _binary(self, node: ast.BinOp, is_sure: bool) -> Typed:
        left, left_type = self.translate(node.left, is_sure=is_sure)
        right, right_type = self.translate(node.right, is_sure=is_sure)
        types = {left_type, right_type}
        type_: ValueType = "any"
        if types <= _NUMBERS:
            is_float = "float" in types or isinstance(node.op, ast.Div)
            type_ = "float" if is_float else "int"
        elif isinstance(node.op, ast.Add) and types == {"str"}:
            type_ = "str"
        elif isinstance(node.op, ast.Add) and types <= _LISTS:
            type_ = "list"
        elif types - {"any"} - _NUMBERS:
            # with Add, one side may be text and the other unknown
            if not (isinstance(node.op, ast.Add) and "any" in types and "none" not in types):
                raise ExpressionError(_mismatch(node.op, left_type, right_type), node)
            type_ = "str" if "str" in types else "any"
        elif isinstance(node.op, ast.Mult | ast.Mod):
            name = "multiply" if isinstance(node.op, ast.Mult) else "modulo"
            return call(name, left, right), "any"
        return ast.BinOp(left, node.op, right), type_

    def _unary(self, node: ast.UnaryOp, is_sure: bool) -> Typed:
        operand, type_ = self.translate(node.operand, is_sure=is_sure)
        if isinstance(node.op, ast.Not):
            return ast.UnaryOp(node.op, operand), "bool"
        if type_ not in _NUMBERS | {"any"}:
            raise ExpressionError(f"{_WORDS[type_]} has no sign", node)
        return ast.UnaryOp(node.op, operand), "int" if type_ == "bool" else type_

    def _logical(self, node: ast.BoolOp, is_sure: bool) -> Typed:
        parts = [
            self.translate(value, is_sure=is_sure and index == 0)
            for index, value in enumerate(node.values)
        ]
        return ast.BoolOp(node.op, [part for part, _ in parts]), _common(*[t for _, t in parts])

    def _choice(self, node: ast.IfExp, is_sure: bool) -> Typed:
        test, _ = self.translate(node.test, is_sure=is_sure)
        body, body_type = self.translate(node.body, is_sure=False)
        other, other_type = self.translate(node.orelse, is_sure=False)
        return ast.IfExp(test, body, other), _common(body_type, other_type)

    def _comparison(self, node: ast.Compare, is_sure: bool) -> Typed:
        left, left_type = self.translate(node.left, is_sure=is_sure)
        parts = []
        for index, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if isinstance(right_node, ast.List | ast.Tuple):
                for member in right_node.elts:
                    _, member_type = self.translate(member)
                    _check_comparable(ast.Eq(), left_type, member_type, member)
                elements: list[ast.expr] = [_constant(member) for member in right_node.elts]
                right: ast.expr = ast.Tuple(elements, ast.Load())
                right_type: ValueType = "list"
            else:
                right, right_type = self.translate(right_node, is_sure=is_sure and index == 0)
                _check_comparable(op, left_type, right_type, right_node)
            parts.append(right)
            left_type = right_type
        return ast.Compare(left, node.ops, parts), "bool"

    def _call(self, node: ast.Call, is_sure: bool) -> Typed:  # noqa: PLR0911 - one per function
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "get":
            return self._get(node)
        if name == "flags":
            return self._flags(node, is_sure)
        parts = [self.translate(argument, is_sure=is_sure) for argument in node.args]
        types = [type_ for _, type_ in parts]
        values = [value for value, _ in parts]
        if name in _CALLED_FUNCTIONS_OF_TEXT and types[0] not in {"str", "any"}:
            raise ExpressionError(f"{name}() takes text, not {_WORDS[types[0]]}", node)
        if name == "len" and types[0] in _NUMBERS | {"none"}:
            raise ExpressionError(f"{_WORDS[types[0]]} has no length: use str()", node)
        if name in {"str", "int", "float"} and types[0] == name:
            return values[0], types[0]
        if name == "round":
            # round(x) is an integer, and round(x, n) has the type of x
            known = types[0] if types[0] in {"int", "float"} else "any"
            return call(name, *values), "int" if len(values) == 1 else known
        if name == "abs":
            return call(name, *values), types[0] if types[0] in {"int", "float"} else "any"
        if name in {"min", "max"}:
            return call(name, *values), _common(*types)
        return call(name, *values), _RESULTS[name]

    def _get(self, node: ast.Call) -> Typed:
        if not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
            return self._part(node)
        wanted = node.args[0].value
        value, type_ = self.optional(str(wanted), node)
        default, default_type = (
            self.translate(node.args[1], is_sure=False)
            if len(node.args) > 1
            else (ast.Constant(None), "none")
        )
        name = self.temporary()
        test = ast.Compare(
            ast.NamedExpr(ast.Name(name, ast.Store()), value), [ast.IsNot()], [ast.Constant(None)]
        )
        chosen = ast.IfExp(test, ast.Name(name, ast.Load()), default)
        return chosen, _common(type_, default_type)

    def _part(self, node: ast.Call) -> Typed:
        values = [self.translate(node.args[0], is_sure=False)[0], deepcopy(node.args[1])]
        if len(node.args) > 2:  # noqa: PLR2004 - value and name
            values.append(self.translate(node.args[2], is_sure=False)[0])
        return call("part", *values), "any"

    def _flags(self, node: ast.Call, is_sure: bool) -> Typed:
        names = [str(keyword.arg) for keyword in node.keywords]
        tests = [self.translate(keyword.value, is_sure=is_sure)[0] for keyword in node.keywords]
        pairs: list[ast.expr] = [
            ast.Tuple([ast.Constant(name), test], ast.Load())
            for name, test in zip(names, tests, strict=True)
        ]
        # most rows have none of the flags, and need no call
        is_any = ast.BoolOp(ast.Or(), tests) if len(tests) > 1 else tests[0]
        return ast.IfExp(is_any, call("flags", *pairs), ast.List([], ast.Load())), "strs"


def call(name: str, *values: ast.expr) -> ast.Call:
    """Return a call of a function of ``functions``."""
    return ast.Call(ast.Name(name, ast.Load()), list(values), [])


def _constant(node: ast.expr) -> ast.Constant:
    if not isinstance(node, ast.Constant):
        raise ExpressionError("a literal is expected", node)
    return node


def _type_of(value: object) -> ValueType:
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case _:
            return "none"


def _common(*types: ValueType) -> ValueType:
    return types[0] if len(set(types)) == 1 else "any"


def _check_comparable(op: ast.cmpop, left: ValueType, right: ValueType, node: ast.expr) -> None:
    if isinstance(op, ast.In | ast.NotIn):
        if right in _NUMBERS | {"none"}:
            raise ExpressionError(f"nothing can be in {_WORDS[right]}", node)
        return
    kinds = {"number" if type_ in _NUMBERS else type_ for type_ in (left, right)}
    if kinds == {"number", "str"}:
        raise ExpressionError(
            f"{_WORDS[left]} is compared with {_WORDS[right]}: give the column's type under "
            "columns, or write int(...) or quotes",
            node,
        )


def _mismatch(op: ast.operator, left: ValueType, right: ValueType) -> str:
    signs = {
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.FloorDiv: "//",
        ast.Mod: "%",
    }
    return (
        f"{_WORDS[left]} {signs[type(op)]} {_WORDS[right]} cannot be computed: "
        "use str(...) or int(...), or give the column's type under columns"
    )
