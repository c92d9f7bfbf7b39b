"""Atomic operators as data: what every backend provides, and nothing more.

A program is steps of these and of the one raster operator. Every other operator
is a rule that emits them: a transform rasters alone, a composite rasters and
atomics. A backend is therefore the kernels of ``ATOMIC`` and a raster (Walle
2022: a backend costs N_aop + 1 pieces of work).
"""

from enum import StrEnum
from typing import Final


class Operator(StrEnum):
    """A step of a program. Shape and dtype rules: ``engine.rules``."""

    RASTER = "raster"

    ABS = "abs"
    NEG = "neg"
    SIGN = "sign"
    NOT = "not"
    """Of bool; of integers by bit."""
    CEIL = "ceil"
    FLOOR = "floor"
    ROUND = "round"
    """To the nearest, halves to even."""
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    IS_NAN = "is_nan"
    CAST = "cast"
    """To ``dtype``; ``saturate`` for the float8 family, ``mode`` for float8e8m0."""
    BITCAST = "bitcast"
    """The same bits as ``dtype``, of the same width."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """Of integers: towards zero."""
    POW = "pow"
    MOD = "mod"
    """With the divisor's sign."""
    FMOD = "fmod"
    """With the dividend's sign."""
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    EQUAL = "equal"
    LESS = "less"
    LESS_EQUAL = "less_equal"

    SELECT = "select"
    """``inputs[0] ? inputs[1] : inputs[2]``."""

    SUM = "sum"
    """Over ``axes``, which stay with size 1, as those of all reductions."""
    PROD = "prod"
    REDUCE_MAX = "reduce_max"
    REDUCE_MIN = "reduce_min"
    ARG_MAX = "arg_max"
    """Along ``axis``, int64, the first of equals or, with ``last``, the last."""
    ARG_MIN = "arg_min"

    MATMUL = "matmul"
    """``(..., M, K) @ (..., K, N)``; the leading axes are equal."""
    ARGSORT = "argsort"
    """Along the last axis, stable, ``descending`` or not; int64."""
    TAKE = "take"
    """``(outer, N, inner)`` by int64 indices ``(M,)``: ``(outer, M, inner)``."""
    PUT = "put"
    """``(N, inner)``, int64 indices ``(M,)``, updates ``(M, inner)``: a copy with the rows
    replaced, or combined by ``reduction`` (add, mul, minimum, maximum), in order."""
    NONZERO = "nonzero"
    """Flat positions, int64 ``(count,)``: beside ``TEXT`` the one whose shape depends on values."""
    RANDOM = "random"
    """Uniform in [0, 1) of ``shape`` and ``dtype``, from ``seed`` or fresh."""
    TEXT = "text"
    """An operation on strings, ``name``, that makes ``shape``, or None where it depends on
    values, and ``dtype``; done by the host for every backend."""


UNARY: Final = frozenset({
    Operator.ABS, Operator.NEG, Operator.SIGN, Operator.NOT, Operator.CEIL, Operator.FLOOR,
    Operator.ROUND, Operator.SQRT, Operator.EXP, Operator.LOG, Operator.SIN, Operator.COS,
    Operator.TAN, Operator.ASIN, Operator.ACOS, Operator.ATAN, Operator.SINH, Operator.COSH,
    Operator.TANH, Operator.ASINH, Operator.ACOSH, Operator.ATANH, Operator.ERF,
    Operator.IS_NAN, Operator.CAST, Operator.BITCAST,
})  # fmt: skip
"""One input, an output of its shape, each element from one."""

ARITHMETIC: Final = frozenset({
    Operator.ADD, Operator.SUB, Operator.MUL, Operator.DIV, Operator.POW, Operator.MOD,
    Operator.FMOD, Operator.MINIMUM, Operator.MAXIMUM, Operator.AND, Operator.OR,
    Operator.XOR, Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT,
})  # fmt: skip
"""Two inputs of one shape and dtype, an output of both."""

COMPARISON: Final = frozenset({Operator.EQUAL, Operator.LESS, Operator.LESS_EQUAL})
"""Two inputs of one shape and dtype, a bool output."""

BINARY: Final = ARITHMETIC | COMPARISON

ELEMENTWISE: Final = UNARY | BINARY | {Operator.SELECT}
"""Every output element depends on the input elements at its place alone."""


REDUCTION: Final = frozenset(
    {Operator.SUM, Operator.PROD, Operator.REDUCE_MAX, Operator.REDUCE_MIN}
)
ARG_REDUCTION: Final = frozenset({Operator.ARG_MAX, Operator.ARG_MIN})

HOST: Final = frozenset({Operator.TEXT})
"""Never on an accelerator."""

ATOMIC: Final = frozenset(Operator) - {Operator.RASTER}
"""N_aop: what a backend provides beside the raster."""
