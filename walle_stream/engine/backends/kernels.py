"""Kernels that numpy lacks, or has with another meaning than the operators."""

from collections.abc import Mapping, Sequence
from math import erf as erf_of_one
from typing import Any, Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import is_foreign, is_integer

UFUNCS: Final[Mapping[Operator, str]] = {
    Operator.ABS: "abs", Operator.NEG: "negative", Operator.SIGN: "sign",
    Operator.NOT: "invert", Operator.CEIL: "ceil", Operator.FLOOR: "floor",
    Operator.SQRT: "sqrt", Operator.EXP: "exp", Operator.LOG: "log",
    Operator.SIN: "sin", Operator.COS: "cos", Operator.TAN: "tan", Operator.ASIN: "arcsin",
    Operator.ACOS: "arccos", Operator.ATAN: "arctan", Operator.SINH: "sinh",
    Operator.COSH: "cosh", Operator.TANH: "tanh", Operator.ASINH: "arcsinh",
    Operator.ACOSH: "arccosh", Operator.ATANH: "arctanh", Operator.IS_NAN: "isnan",
    Operator.ADD: "add", Operator.SUB: "subtract", Operator.MUL: "multiply",
    Operator.MOD: "mod", Operator.FMOD: "fmod", Operator.MINIMUM: "minimum",
    Operator.MAXIMUM: "maximum", Operator.AND: "bitwise_and", Operator.OR: "bitwise_or",
    Operator.XOR: "bitwise_xor", Operator.SHIFT_LEFT: "left_shift",
    Operator.SHIFT_RIGHT: "right_shift", Operator.EQUAL: "equal", Operator.LESS: "less",
    Operator.LESS_EQUAL: "less_equal",
}  # fmt: skip
"""Operators that are a single numpy function, with ``out``."""


def divide(x: Array, y: Array) -> Array:
    """Divide arrays of one dtype; integers round towards zero, and dividing them by 0 gives 0."""
    if x.dtype.kind not in "iub":
        return np.divide(x, y)
    floor = np.floor_divide(x, y)
    away = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))
    return floor + away.astype(x.dtype)


def power(x: Array, y: Array) -> Array:
    """Raise elements to exponents of the same dtype.

    For integers a negative exponent gives 1, -1 or 0; numpy refuses it.
    """
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    raised = np.power(x, np.maximum(y, 0))
    odd = (y % 2).astype(bool)
    inverse = np.where(x == 1, 1, np.where((x + 1 == 0) & (y < 0), np.where(odd, -1, 1), 0))
    # cast first: numpy would convert a mix of int64 and uint64 to float64
    return np.where(y < 0, inverse.astype(x.dtype), raised)


def nearest(x: Array) -> Array:
    """Round to integers, halves to even; integers stay, while numpy would make floats of them."""
    return x.copy() if is_integer(x.dtype) else np.rint(x)


def erf(x: Array) -> Array:
    """Return the error function of floats, by the C library for each element: slow but accurate."""
    flat = [erf_of_one(element) for element in x.astype(np.float64).reshape(-1).tolist()]
    return np.array(flat, np.float64).reshape(x.shape).astype(x.dtype)


def matmul(x: Array, y: Array) -> Array:
    """Multiply ``(..., M, K)`` by ``(..., K, N)``; narrow floats are accumulated in float32."""
    if x.dtype.kind in "iub" or x.dtype.itemsize >= 4:  # noqa: PLR2004  # float32
        return np.matmul(x, y)
    return np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)


def lowest(dtype: DType) -> Any:
    """Return the smallest value of a dtype; minus infinity for floats."""
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def highest(dtype: DType) -> Any:
    """Return the largest value of a dtype; see ``lowest``."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


def argsort(inputs: Sequence[Array], parameters: Mapping[str, Any]) -> Array:
    """Return int64 positions of a stable sort along the last axis, ``descending`` or not."""
    (x,) = inputs
    if is_foreign(x.dtype):
        # a nan breaks the order of ml_dtypes
        x = x.astype(np.float32)
    if not parameters.get("descending"):
        return np.argsort(x, axis=-1, kind="stable")
    # equal elements keep their order: sort the reversed axis, and reverse the result
    mirrored = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return x.shape[-1] - 1 - mirrored


def check_indices(indices: Array, size: int) -> Array:
    """Refuse an index that is out of range.

    Raises:
        IndexError: An index is negative, or not below ``size``.
    """
    wrong = (indices < 0) | (indices >= size)
    if wrong.any():
        raise IndexError(f"index {indices[wrong][0]} is not in 0 .. {size - 1}")
    return indices


BLOCK: Final = 1 << 13
"""Elements of a block; three blocks of float32 fit into the second-level cache."""

_LIMIT: Final = np.float32(4.0)
_P: Final = tuple(
    np.float32(factor)
    for factor in (
        1.986683040545759e-06, 0.0002845416645987962, 0.003882868754683801,
        0.0531002552938111, 0.19353597136187836, 1.1283791395361198,
    )
)  # fmt: skip
_Q: Final = tuple(
    np.float32(factor)
    for factor in (
        3.7417855603274595e-05, 0.0011854299942666883, 0.01520631747581593,
        0.11534598112917442, 0.5048493479535978, 1.0,
    )
)  # fmt: skip


def erf_into(x: Array, output: Array) -> None:
    """Compute the error function of float32 with any strides; ``output`` may be ``x``."""
    if not (x.flags.c_contiguous and output.flags.c_contiguous):
        result = np.ascontiguousarray(x)
        _blocks(result.reshape(-1), result.reshape(-1))
        np.copyto(output, result)
        return
    _blocks(x.reshape(-1), output.reshape(-1))


def _blocks(x: Array, output: Array) -> None:
    count = min(BLOCK, x.size)
    square, top, low = (np.empty(count, np.float32) for _ in range(3))
    for start in range(0, x.size, BLOCK):
        part = x[start : start + BLOCK]
        size = part.size
        t, p, q = square[:size], top[:size], low[:size]
        clipped = output[start : start + size]
        np.clip(part, -_LIMIT, _LIMIT, out=clipped)
        np.multiply(clipped, clipped, out=t)
        _polynomial(_P, t, p)
        _polynomial(_Q, t, q)
        np.multiply(clipped, p, out=clipped)
        np.divide(clipped, q, out=clipped)


def _polynomial(factors: tuple[np.float32, ...], t: Array, output: Array) -> None:
    np.multiply(t, factors[0], out=output)
    for factor in factors[1:-1]:
        np.add(output, factor, out=output)
        np.multiply(output, t, out=output)
    np.add(output, factors[-1], out=output)
