"""Elements as Python scalars: floats with values of their dtype, and ints for integers.

Each kernel computes in Python's numbers and fits the results to its dtype: a float is rounded to
the nearest, halves to even; an integer keeps its low bits.
"""

import struct
from array import array as packed
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from math import copysign, isfinite, isinf, isnan
from typing import Any, Final

import numpy as np

from walle_stream.engine.program import Array, DType
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import BOOL, is_floating, is_foreign, is_integer

type Elements = list[Any]

_TEXT: Final = np.dtype(object)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor with its elements."""

    shape: Shape
    dtype: DType
    elements: Elements
    """Flat list, row-major; never changed after construction."""


def read(array: Array) -> Value:
    """Return the elements of an array of any dtype."""
    if array.size > 1 and not any(array.strides):
        # convert the single element of a broadcast array only once
        return Value(array.shape, array.dtype, read(array.reshape(-1)[:1]).elements * array.size)
    flat = array.reshape(-1)
    if not is_foreign(array.dtype):
        return Value(array.shape, array.dtype, flat.tolist())
    scalar = float if is_floating(array.dtype) else int
    return Value(array.shape, array.dtype, [scalar(each) for each in flat])


def written(value: Value) -> Array:
    """Return an array with the elements of a value of any dtype."""
    made = np.empty(len(value.elements), value.dtype)
    if not is_foreign(value.dtype):
        made[:] = value.elements
    else:
        for place, each in enumerate(value.elements):
            made[place] = value.dtype.type(each)
    return made.reshape(value.shape)


def fitted(elements: Iterable[Any], dtype: DType) -> Elements:
    """Round or wrap computed elements.

    Args:
        elements: Floats for a floating dtype, ints or bools for other dtypes.
        dtype: Dtype of the result.
    """
    return _fit(dtype)(list(elements))


def bits_of(dtype: DType) -> tuple[int, bool]:
    """Return the number of bits of an integer dtype, and whether it is signed."""
    if not is_foreign(dtype):
        return dtype.itemsize * 8, dtype.kind == "i"
    return int(dtype.name.removeprefix("u").removeprefix("int")), dtype.name.startswith("int")


def range_of(dtype: DType) -> tuple[Any, Any]:
    """Return the least and the greatest element of a dtype; infinities for floats."""
    if dtype == BOOL:
        return False, True
    if is_floating(dtype):
        return -float("inf"), float("inf")
    bits, is_signed = bits_of(dtype)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


@cache
def _fit(dtype: DType) -> Callable[[Elements], Elements]:
    if dtype in {_TEXT, np.dtype(np.float64)}:
        return list
    if dtype == BOOL:
        return lambda elements: [bool(each) for each in elements]
    if is_integer(dtype):
        return _wrapping(*bits_of(dtype))
    if dtype == np.float32:
        return lambda elements: packed("f", elements).tolist()
    return _to_half if dtype == np.float16 else _to_narrow(dtype)


def _wrapping(bits: int, is_signed: bool) -> Callable[[Elements], Elements]:
    half = 1 << bits - 1 if is_signed else 0
    mask = (1 << bits) - 1

    def wrap(elements: Elements) -> Elements:
        if not elements or (min(elements) >= -half and max(elements) <= mask - half):
            return elements
        return [(each + half & mask) - half for each in elements]

    return wrap


def _to_half(elements: Elements) -> Elements:
    try:
        form = f"<{len(elements)}e"
        return list(struct.unpack(form, struct.pack(form, *elements)))
    except OverflowError:
        return [_one_half(each) for each in elements]


def _one_half(number: float) -> float:
    try:
        return float(struct.unpack("<e", struct.pack("<e", number))[0])
    except OverflowError:
        return copysign(float("inf"), number)


def _to_narrow(dtype: DType) -> Callable[[Elements], Elements]:
    """Return the rounding to a float of few bits: to the nearest of all its values."""
    kind = dtype.type
    steps = _positive(dtype)
    beyond = 2 * steps[-1] - steps[-2]
    over, under = float(kind(float("inf"))), float(kind(-float("inf")))
    nothing, negative_zero = float(kind(float("nan"))), float(kind(-0.0))

    def rounded(number: float) -> float:
        if isnan(number):
            return nothing
        size = abs(number)
        place = bisect_left(steps, size) if isfinite(number) else len(steps)
        if isinf(number) or size >= beyond:
            return over if number > 0 else under
        high = steps[place] if place < len(steps) else beyond
        if place and high != size:
            low = steps[place - 1]
            # codes of floats are in their order, so an even index is an even code
            is_low = size - low < high - size or (size - low == high - size and place % 2)
            place, high = (place - 1, low) if is_low else (place, high)
        if place == len(steps):
            return over if number > 0 else under
        if not high:
            return negative_zero if copysign(1, number) < 0 else 0.0
        return copysign(high, number)

    return lambda elements: [rounded(each) for each in elements]


def _positive(dtype: DType) -> list[float]:
    """Return the finite elements from 0 on, in the order of their codes."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    codes = np.arange(1 << 8 * dtype.itemsize, dtype=np.uint32).astype(unsigned)
    found: list[float] = []
    for each in codes.view(dtype):
        number = float(each)
        if not isfinite(number) or (found and number <= found[-1]):
            break
        found.append(number)
    return found
