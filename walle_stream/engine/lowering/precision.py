"""Dtypes in which composites compute: float32 for narrow floats, their own for wider ones."""

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import FLOAT32, FLOAT64, is_floating, is_integer
from walle_stream.errors import DTypeError, LoweringError


def wide_dtype(*dtypes: DType) -> DType:
    """Return the dtype to compute in: the widest of floating-point dtypes, at least float32.

    Raises:
        DTypeError: A dtype is not a floating-point one.
    """
    for dtype in dtypes:
        if not is_floating(dtype):
            raise DTypeError(f"floating-point numbers are expected, not {dtype.name}")
    return max((FLOAT32, *dtypes), key=lambda dtype: dtype.itemsize)


def widened(builder: Builder, x: Tensor) -> Tensor:
    """Return a tensor in the dtype to compute in; a float32 or float64 tensor stays."""
    return builder.cast(x, wide_dtype(x.dtype))


def float_dtype(code: int, name: str) -> DType:
    """Return the floating-point dtype, of at least 16 bits, that an attribute names.

    Raises:
        LoweringError: The attribute names another dtype.
    """
    dtype = element_type(code)
    if not is_floating(dtype) or dtype.itemsize == 1:
        raise LoweringError(f"attribute {name!r} names element type {code}, not a floating one")
    return dtype


def require_floating(x: Tensor, what: str = "input 0") -> Tensor:
    """Refuse a tensor that has no floating-point numbers.

    Raises:
        DTypeError: The tensor has another dtype.
    """
    if not is_floating(x.dtype):
        raise DTypeError(f"{what} must have floating-point numbers, not {x.dtype.name}")
    return x


def require_numbers(x: Tensor, what: str = "input 0") -> Tensor:
    """Refuse a tensor that has neither integers nor floating-point numbers.

    Raises:
        DTypeError: The tensor has another dtype.
    """
    if not (is_integer(x.dtype) or is_floating(x.dtype)):
        raise DTypeError(f"{what} must have numbers, not {x.dtype.name}")
    return x


def weighted_dtype(x: DType, weights: DType = FLOAT32) -> DType:
    """Return the dtype for products of elements and weights: float32, or float64 to lose nothing.

    Complex numbers keep their dtype.

    Raises:
        DTypeError: The elements are strings.
    """
    if x.kind == "O":
        raise DTypeError("strings cannot be interpolated; use mode nearest")
    if x.kind == "c":
        return x
    exact = FLOAT32.itemsize if is_floating(x) else FLOAT32.itemsize - 1
    is_wide = x.itemsize > exact or weights.itemsize > FLOAT32.itemsize
    return FLOAT64 if is_wide else FLOAT32


def narrowed(builder: Builder, x: Tensor, dtype: DType) -> Tensor:
    """Cast a weighted result, floating or complex, back to the dtype of the elements.

    For integers it is clipped to their range, and truncated towards zero.
    """
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        high = float(bounds.max)
        greatest = high if high <= bounds.max else np.nextafter(high, 0)
        x = builder.clip(x, float(bounds.min), greatest)
    return builder.cast(x, dtype)
