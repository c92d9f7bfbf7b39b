"""Atomic operators as data: the complete list that every backend provides.

The steps of a program are atomic operators and the one raster operator. Every other operator is a
rule that emits steps: a transform emits only rasters, a composite emits rasters and atomics. A
backend therefore needs the kernels of ``ATOMIC`` and a raster (Walle 2022: N_aop + 1 kernels).
"""

from enum import StrEnum
from typing import Final


class Operator(StrEnum):
    """The operator of a step. ``engine.rules`` has the rules of shapes and dtypes."""

    RASTER = "raster"

    ABS = "abs"
    NEG = "neg"
    SIGN = "sign"
    NOT = "not"
    """Logical for bool, bitwise for integers."""
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
    """The same bits, read as ``dtype`` of the same width."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """Integers are rounded towards zero."""
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
    """Over ``axes``, which stay with size 1; so do the axes of all reductions."""
    PROD = "prod"
    REDUCE_MAX = "reduce_max"
    REDUCE_MIN = "reduce_min"
    ARG_MAX = "arg_max"
    """Along ``axis``, int64; the first of equal elements or, with ``last``, the last."""
    ARG_MIN = "arg_min"

    MATMUL = "matmul"
    """``(..., M, K) @ (..., K, N)``; the leading axes are equal."""
    ARGSORT = "argsort"
    """Along the last axis, stable, ``descending`` or not; int64."""
    TAKE = "take"
    """``(outer, N, inner)`` by int64 indices ``(M,)`` gives ``(outer, M, inner)``."""
    PUT = "put"
    """A copy of ``(N, inner)`` with the rows of int64 indices ``(M,)`` replaced by updates
    ``(M, inner)``, or combined by ``reduction`` (add, mul, minimum, maximum), in order."""
    NONZERO = "nonzero"
    """Flat positions, int64 ``(count,)``. Only its shape and those of ``TEXT`` depend on values."""
    RANDOM = "random"
    """Uniform in [0, 1) of ``shape`` and ``dtype``, from ``seed`` or fresh entropy."""
    TEXT = "text"
    """The operation ``name`` on strings. Its output has ``dtype`` and ``shape``, which is None if
    it depends on values. The host runs it for every backend."""


UNARY: Final = frozenset({
    Operator.ABS, Operator.NEG, Operator.SIGN, Operator.NOT, Operator.CEIL, Operator.FLOOR,
    Operator.ROUND, Operator.SQRT, Operator.EXP, Operator.LOG, Operator.SIN, Operator.COS,
    Operator.TAN, Operator.ASIN, Operator.ACOS, Operator.ATAN, Operator.SINH, Operator.COSH,
    Operator.TANH, Operator.ASINH, Operator.ACOSH, Operator.ATANH, Operator.ERF,
    Operator.IS_NAN, Operator.CAST, Operator.BITCAST,
})  # fmt: skip
"""One input, and an output of its shape; each output element depends on one input element."""

ARITHMETIC: Final = frozenset({
    Operator.ADD, Operator.SUB, Operator.MUL, Operator.DIV, Operator.POW, Operator.MOD,
    Operator.FMOD, Operator.MINIMUM, Operator.MAXIMUM, Operator.AND, Operator.OR,
    Operator.XOR, Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT,
})  # fmt: skip
"""Two inputs of one shape and dtype, and an output of the same shape and dtype."""

COMPARISON: Final = frozenset({Operator.EQUAL, Operator.LESS, Operator.LESS_EQUAL})
"""Two inputs of one shape and dtype, and a bool output."""

BINARY: Final = ARITHMETIC | COMPARISON

ELEMENTWISE: Final = UNARY | BINARY | {Operator.SELECT}
"""Every output element depends only on the input elements at its place."""


REDUCTION: Final = frozenset(
    {Operator.SUM, Operator.PROD, Operator.REDUCE_MAX, Operator.REDUCE_MIN}
)
ARG_REDUCTION: Final = frozenset({Operator.ARG_MAX, Operator.ARG_MIN})

HOST: Final = frozenset({Operator.TEXT})
"""Operators that never run on an accelerator."""

ATOMIC: Final = frozenset(Operator) - {Operator.RASTER}
"""Operators that a backend provides beside the raster; N_aop is their number."""
