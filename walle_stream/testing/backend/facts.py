"""Written-out results of atomic operators: operator, dtype, inputs, output.

They cover the cases that a definition must state: special values, ends of ranges, halves, signs of
zeros. Floats computed here are exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any, Final

from walle_stream.engine.operators import Operator

type Elements = Sequence[Any]

FLOATS: Final = ("float64", "float32", "float16", "bfloat16")
SIGNED: Final = ("int8", "int16", "int32", "int64")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True, slots=True)
class Fact:
    """A result of an operator on tensors of shape ``(n,)``, unless its parameters say otherwise."""

    operator: Operator
    dtypes: Sequence[str]
    """Dtypes to test, each for all inputs; a condition is bool."""
    inputs: Sequence[Elements]
    output: Elements
    parameters: Mapping[str, Any] = field(default_factory=dict)


def _unary(operator: Operator, dtypes: Sequence[str], *pairs: tuple[Any, Any]) -> Fact:
    return Fact(operator, dtypes, [[x for x, _ in pairs]], [y for _, y in pairs])


def _binary(operator: Operator, dtypes: Sequence[str], *rows: tuple[Any, Any, Any]) -> Fact:
    return Fact(operator, dtypes, [[x for x, _, _ in rows], [y for _, y, _ in rows]],
                [z for _, _, z in rows])  # fmt: skip


UNARY_FACTS: Final = (
    _unary(Operator.ABS, FLOATS, (-2.5, 2.5), (-0.0, 0.0), (-inf, inf), (nan, nan)),
    _unary(Operator.ABS, ("int8",), (-128, -128), (-127, 127), (0, 0)),
    _unary(Operator.NEG, FLOATS, (0.0, -0.0), (-0.0, 0.0), (inf, -inf), (nan, nan), (1.5, -1.5)),
    _unary(Operator.NEG, ("int8",), (-128, -128), (1, -1)),
    _unary(Operator.NEG, ("uint8",), (1, 255), (0, 0), (255, 1)),
    _unary(Operator.SIGN, FLOATS, (-3.0, -1.0), (0.0, 0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)),
    _unary(Operator.SIGN, SIGNED, (-3, -1), (0, 0), (9, 1)),
    _unary(Operator.SIGN, UNSIGNED, (0, 0), (9, 1)),
    _unary(Operator.NOT, ("bool",), (True, False), (False, True)),
    _unary(Operator.NOT, SIGNED, (0, -1), (-1, 0), (5, -6)),
    _unary(Operator.NOT, ("uint8",), (0, 255), (5, 250)),
    _unary(Operator.CEIL, FLOATS, (-0.5, -0.0), (1.25, 2.0), (-inf, -inf), (nan, nan), (3.0, 3.0)),
    _unary(Operator.FLOOR, FLOATS, (-0.5, -1.0), (-0.0, -0.0), (inf, inf), (nan, nan), (1.75, 1.0)),
    _unary(Operator.ROUND, FLOATS, (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-1.5, -2.0),
           (inf, inf), (nan, nan)),
    _unary(Operator.ROUND, ("int64",), ((1 << 62) + 1, (1 << 62) + 1), (-7, -7)),
    _unary(Operator.CEIL, ("int64",), ((1 << 62) + 1, (1 << 62) + 1), (-7, -7)),
    _unary(Operator.FLOOR, ("uint64",), ((1 << 64) - 1, (1 << 64) - 1), (0, 0)),
    _unary(Operator.SQRT, FLOATS, (4.0, 2.0), (-0.0, -0.0), (-1.0, nan), (inf, inf), (nan, nan)),
    _unary(Operator.EXP, FLOATS, (0.0, 1.0), (-inf, 0.0), (inf, inf), (nan, nan), (1e4, inf)),
    _unary(Operator.LOG, FLOATS, (1.0, 0.0), (0.0, -inf), (-0.0, -inf), (-1.0, nan), (inf, inf)),
    _unary(Operator.SIN, FLOATS, (0.0, 0.0), (-0.0, -0.0), (inf, nan), (nan, nan)),
    _unary(Operator.COS, FLOATS, (0.0, 1.0), (-inf, nan), (nan, nan)),
    _unary(Operator.TAN, FLOATS, (0.0, 0.0), (-0.0, -0.0), (inf, nan), (nan, nan)),
    _unary(Operator.ASIN, FLOATS, (0.0, 0.0), (1.5, nan), (-inf, nan), (nan, nan)),
    _unary(Operator.ACOS, FLOATS, (1.0, 0.0), (-1.5, nan), (inf, nan), (nan, nan)),
    _unary(Operator.ATAN, FLOATS, (0.0, 0.0), (-0.0, -0.0), (nan, nan)),
    _unary(Operator.SINH, FLOATS, (0.0, 0.0), (inf, inf), (-inf, -inf), (nan, nan), (-1e4, -inf)),
    _unary(Operator.COSH, FLOATS, (0.0, 1.0), (inf, inf), (-inf, inf), (nan, nan), (-1e4, inf)),
    _unary(Operator.TANH, FLOATS, (0.0, 0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (-99.0, -1.0)),
    _unary(Operator.ASINH, FLOATS, (0.0, 0.0), (inf, inf), (-inf, -inf), (nan, nan)),
    _unary(Operator.ACOSH, FLOATS, (1.0, 0.0), (0.5, nan), (inf, inf), (-inf, nan), (nan, nan)),
    _unary(Operator.ATANH, FLOATS, (0.0, 0.0), (1.0, inf), (-1.0, -inf), (1.5, nan), (nan, nan)),
    _unary(Operator.ERF, FLOATS, (0.0, 0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (9.0, 1.0)),
    _unary(Operator.IS_NAN, FLOATS, (nan, True), (inf, False), (-0.0, False), (1.0, False)),
)  # fmt: skip

BINARY_FACTS: Final = (
    _binary(Operator.ADD, FLOATS, (1.5, 2.0, 3.5), (inf, -inf, nan), (-0.0, -0.0, -0.0)),
    _binary(Operator.ADD, ("int8",), (127, 1, -128), (-128, -1, 127)),
    _binary(Operator.ADD, ("uint64",), ((1 << 64) - 1, 2, 1)),
    _binary(Operator.SUB, FLOATS, (1.5, 2.0, -0.5), (inf, inf, nan), (1.0, 1.0, 0.0)),
    _binary(Operator.SUB, ("uint8",), (0, 1, 255)),
    _binary(Operator.SUB, ("int64",), (-(1 << 63), 1, (1 << 63) - 1)),
    _binary(Operator.MUL, FLOATS, (1.5, -2.0, -3.0), (0.0, inf, nan), (0.0, -1.0, -0.0)),
    _binary(Operator.MUL, ("int32",), (1 << 16, 1 << 16, 0), (-3, 5, -15)),
    _binary(Operator.MUL, ("uint16",), (65535, 65535, 1)),
    _binary(Operator.DIV, FLOATS, (1.0, -2.0, -0.5), (1.0, 0.0, inf), (1.0, -0.0, -inf),
            (0.0, 0.0, nan), (inf, inf, nan), (-1.0, inf, -0.0)),
    _binary(Operator.DIV, SIGNED, (7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (5, 0, 0),
            (-6, 3, -2)),
    _binary(Operator.DIV, ("int8",), (-128, -1, -128)),
    _binary(Operator.DIV, UNSIGNED, (7, 2, 3), (7, 0, 0)),
    _binary(Operator.DIV, ("uint64",), ((1 << 64) - 1, 2, (1 << 63) - 1)),
    _binary(Operator.POW, FLOATS, (-2.0, 3.0, -8.0), (-2.0, 0.5, nan), (0.0, -1.0, inf),
            (-0.0, -1.0, -inf), (nan, 0.0, 1.0), (1.0, nan, 1.0), (inf, -1.0, 0.0)),
    _binary(Operator.POW, SIGNED, (2, 5, 32), (-3, 3, -27), (0, 0, 1), (2, -1, 0), (1, -4, 1),
            (-1, -3, -1), (-1, -2, 1), (0, -1, 0)),
    _binary(Operator.POW, ("uint8",), (2, 9, 0), (3, 5, 243)),
    _binary(Operator.MOD, FLOATS, (5.5, 2.0, 1.5), (-5.5, 2.0, 0.5), (5.5, -2.0, -0.5),
            (1.0, 0.0, nan), (inf, 2.0, nan), (1.0, inf, 1.0), (-1.0, inf, inf)),
    _binary(Operator.MOD, SIGNED, (7, 3, 1), (-7, 3, 2), (7, -3, -2), (-7, -3, -1), (5, 0, 0)),
    _binary(Operator.FMOD, FLOATS, (5.5, 2.0, 1.5), (-5.5, 2.0, -1.5), (5.5, -2.0, 1.5),
            (1.0, 0.0, nan), (inf, 2.0, nan), (-1.0, inf, -1.0)),
    _binary(Operator.FMOD, SIGNED, (7, 3, 1), (-7, 3, -1), (7, -3, 1), (-7, -3, -1), (5, 0, 0)),
    _binary(Operator.MINIMUM, FLOATS, (1.0, 2.0, 1.0), (nan, 1.0, nan), (1.0, nan, nan),
            (-inf, nan, nan), (-inf, 1.0, -inf)),
    _binary(Operator.MAXIMUM, FLOATS, (1.0, 2.0, 2.0), (nan, 1.0, nan), (1.0, nan, nan),
            (inf, nan, nan), (-inf, 1.0, 1.0)),
    _binary(Operator.MAXIMUM, ("uint64",), ((1 << 63) + 1, 1 << 63, (1 << 63) + 1)),
    _binary(Operator.MINIMUM, ("int64",), ((1 << 62) + 1, 1 << 62, 1 << 62)),
    _binary(Operator.MINIMUM, ("bool",), (True, False, False), (True, True, True)),
    _binary(Operator.MAXIMUM, ("bool",), (True, False, True), (False, False, False)),
    _binary(Operator.AND, SIGNED, (12, 10, 8), (-1, 5, 5)),
    _binary(Operator.OR, SIGNED, (12, 10, 14), (-1, 5, -1)),
    _binary(Operator.XOR, SIGNED, (12, 10, 6), (-1, 5, -6)),
    _binary(Operator.AND, ("bool",), (True, False, False), (True, True, True)),
    _binary(Operator.OR, ("bool",), (True, False, True), (False, False, False)),
    _binary(Operator.XOR, ("bool",), (True, False, True), (True, True, False)),
    _binary(Operator.SHIFT_LEFT, ("uint8",), (1, 7, 128), (3, 7, 128), (1, 8, 0), (1, 200, 0)),
    _binary(Operator.SHIFT_RIGHT, ("uint8",), (128, 7, 1), (255, 8, 0)),
    _binary(Operator.SHIFT_RIGHT, ("int8",), (-128, 7, -1), (-1, 100, -1), (64, 3, 8)),
    _binary(Operator.EQUAL, FLOATS, (1.0, 1.0, True), (nan, nan, False), (0.0, -0.0, True)),
    _binary(Operator.EQUAL, ("uint64",), ((1 << 64) - 1, (1 << 64) - 2, False), (5, 5, True)),
    _binary(Operator.EQUAL, ("object",), ("a", "a", True), ("a", "b", False), ("", "", True)),
    _binary(Operator.LESS, FLOATS, (1.0, 2.0, True), (nan, 2.0, False), (2.0, nan, False),
            (-inf, inf, True), (-0.0, 0.0, False)),
    _binary(Operator.LESS, ("int64",), (1 << 62, (1 << 62) + 1, True), (-1, 0, True)),
    _binary(Operator.LESS_EQUAL, FLOATS, (2.0, 2.0, True), (nan, nan, False), (3.0, 2.0, False)),
)  # fmt: skip

_LINE: Final = {"axes": (0,)}

OTHER_FACTS: Final = (
    Fact(Operator.SUM, FLOATS, [[1.0, 2.0, 4.5]], [7.5], _LINE),
    Fact(Operator.SUM, FLOATS, [[1.0, inf, -inf]], [nan], _LINE),
    Fact(Operator.SUM, ("float16",), [[2048.0, *[1.0] * 8]], [2056.0], _LINE),
    Fact(Operator.SUM, ("int8",), [[127, 127, 4]], [2], _LINE),
    Fact(Operator.SUM, ("uint64",), [[1 << 63, 1 << 63, 7]], [7], _LINE),
    Fact(Operator.PROD, FLOATS, [[1.5, -2.0, 4.0]], [-12.0], _LINE),
    Fact(Operator.PROD, ("uint8",), [[16, 17]], [16], _LINE),
    Fact(Operator.REDUCE_MAX, FLOATS, [[1.0, nan, 3.0]], [nan], _LINE),
    Fact(Operator.REDUCE_MAX, FLOATS, [[-inf, -3.0]], [-3.0], _LINE),
    Fact(Operator.REDUCE_MIN, FLOATS, [[nan, 1.0, 3.0]], [nan], _LINE),
    Fact(Operator.REDUCE_MIN, ("int64",), [[(1 << 62) + 1, 1 << 62]], [1 << 62], _LINE),
    Fact(Operator.REDUCE_MAX, ("bool",), [[False, True]], [True], _LINE),
    Fact(Operator.REDUCE_MIN, ("bool",), [[False, True]], [False], _LINE),
    Fact(Operator.ARG_MAX, FLOATS, [[1.0, 5.0, 5.0, 2.0]], [1], {"axis": 0}),
    Fact(Operator.ARG_MAX, FLOATS, [[1.0, 5.0, 5.0, 2.0]], [2], {"axis": 0, "last": True}),
    Fact(Operator.ARG_MAX, FLOATS, [[1.0, nan, 5.0, nan]], [1], {"axis": 0}),
    Fact(Operator.ARG_MIN, FLOATS, [[3.0, 1.0, nan, 0.0]], [2], {"axis": 0}),
    Fact(Operator.ARG_MIN, SIGNED, [[3, 1, 1, 7]], [2], {"axis": 0, "last": True}),
    Fact(Operator.ARGSORT, FLOATS, [[2.0, nan, 1.0, 2.0, -inf]], [4, 2, 0, 3, 1]),
    Fact(Operator.ARGSORT, FLOATS, [[2.0, nan, 1.0, 2.0, -inf]], [1, 0, 3, 2, 4],
         {"descending": True}),
    Fact(Operator.ARGSORT, ("uint64",), [[(1 << 64) - 1, 0, (1 << 64) - 2]], [1, 2, 0]),
    Fact(Operator.ARGSORT, ("uint8",), [[0, 1, 0, 1]], [1, 3, 0, 2], {"descending": True}),
    Fact(Operator.NONZERO, FLOATS, [[0.0, 2.0, -0.0, nan]], [1, 3]),
    Fact(Operator.NONZERO, ("bool",), [[True, False, True]], [0, 2]),
)  # fmt: skip

CASTS: Final = (
    ("float64", "float32", [1e39, -1e39, 1 + 2**-24, nan, -0.0], [inf, -inf, 1.0, nan, -0.0]),
    ("float64", "float16", [65519.0, 65520.0, 2**-25, -(2**-24)], [65504.0, inf, 0.0, -(2**-24)]),
    # just beside the middle of two values: rounding through float32 would lose the side
    ("float64", "float16", [1 + 2**-11 + 2**-40], [1 + 2**-10]),
    ("float64", "bfloat16", [1 + 2**-8 + 2**-40, 1 + 2**-8], [1 + 2**-7, 1.0]),
    (
        "int64",
        "float32",
        [(1 << 24) + 1, (1 << 53) + (1 << 29) + 1],
        [1 << 24, (1 << 53) + (1 << 30)],
    ),
    ("int64", "bfloat16", [257, 259, -259], [256.0, 260.0, -260.0]),
    ("uint64", "float64", [(1 << 64) - 1], [float(1 << 64)]),
    ("float32", "int32", [2.9, -2.9, -0.5], [2, -2, 0]),
    ("int32", "int8", [128, -129, 300], [-128, 127, 44]),
    ("int8", "uint64", [-1], [(1 << 64) - 1]),
    ("float32", "bool", [0.0, -0.0, 0.25, nan], [False, False, True, True]),
    ("bool", "float16", [True, False], [1.0, 0.0]),
    ("int32", "int4", [7, 8, -9], [7, -8, 7]),
    ("int32", "uint2", [3, 4, -1], [3, 0, 3]),
    ("float32", "float8_e4m3fn", [449.0, inf, -inf, 0.3, nan], [448.0, 448.0, -448.0, 0.3125, nan]),
    ("float32", "float8_e5m2", [1e6, -1e6, 1.125], [57344.0, -57344.0, 1.0]),
    ("float32", "float4_e2m1fn", [0.25, 0.75, 2.5, 7.0, -6.0], [0.0, 1.0, 2.0, 6.0, -6.0]),
    ("float8_e4m3fn", "float32", [448.0, -0.0, nan], [448.0, -0.0, nan]),
    ("object", "int32", ["12", "-3", "4.9"], [12, -3, 4]),
    ("object", "float32", ["1e2", "-inf", "nan"], [100.0, -inf, nan]),
    ("float32", "object", [0.1, 1e10, nan, -inf, 3.0], ["0.1", "10000000000", "NaN", "-INF", "3"]),
    ("int64", "object", [-5, 12], ["-5", "12"]),
)
"""Results of ``CAST``: source dtype, target dtype, elements, wanted elements."""
