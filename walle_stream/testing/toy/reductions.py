"""Reductions over axes, and the index of the greatest or least element along an axis."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan, prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType
from walle_stream.engine.region import Shape, strides_of
from walle_stream.engine.rules import is_floating
from walle_stream.testing.toy.elements import Elements, Value, fitted, range_of
from walle_stream.testing.toy.raster import addresses


def reduction(which: Operator) -> Callable[[Sequence[Value], Mapping[str, Any]], Value]:
    """Return the kernel of an operator in ``REDUCTION``."""
    function = _FUNCTIONS[which]

    def kernel(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
        (x,) = inputs
        axes = parameters["axes"]
        made = [function(each, x.dtype) for each in _lines(x, axes)]
        return Value(_kept(x.shape, axes), x.dtype, fitted(made, x.dtype))

    return kernel


def arg(which: Operator) -> Callable[[Sequence[Value], Mapping[str, Any]], Value]:
    """Return the kernel of an operator in ``ARG_REDUCTION``."""
    best_of = max if which is Operator.ARG_MAX else min

    def place(line: Elements, is_last: bool) -> int:
        # a nan counts as the greatest and as the least
        wanted = [each != each for each in line]  # noqa: PLR0124  # nan
        if not any(wanted):
            best = best_of(line)
            wanted = [each == best for each in line]
        return len(line) - 1 - wanted[::-1].index(True) if is_last else wanted.index(True)

    def kernel(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
        (x,) = inputs
        axis, is_last = parameters["axis"], bool(parameters.get("last"))
        made = [place(each, is_last) for each in _lines(x, (axis,))]
        return Value(_kept(x.shape, (axis,)), np.dtype(np.int64), made)

    return kernel


def _kept(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def _lines(x: Value, axes: Sequence[int]) -> Iterator[Elements]:
    """Yield the input elements of each output element."""
    strides = strides_of(x.shape)
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    inner = addresses([x.shape[axis] for axis in axes], [strides[axis] for axis in axes])
    for start in addresses([x.shape[axis] for axis in others], [strides[a] for a in others]):
        yield [x.elements[start + each] for each in inner]


def _sum(line: Elements, dtype: DType) -> Any:
    return sum(line, 0.0 if is_floating(dtype) else 0)


def _product(line: Elements, dtype: DType) -> Any:
    return prod(line, start=1.0 if is_floating(dtype) else 1)


def _greatest(line: Elements, dtype: DType) -> Any:
    if any(each != each for each in line):  # noqa: PLR0124  # nan
        return nan
    return max(line, default=range_of(dtype)[0])


def _least(line: Elements, dtype: DType) -> Any:
    if any(each != each for each in line):  # noqa: PLR0124  # nan
        return nan
    return min(line, default=range_of(dtype)[1])


_FUNCTIONS: Final[Mapping[Operator, Callable[[Elements, DType], Any]]] = {
    Operator.SUM: _sum,
    Operator.PROD: _product,
    Operator.REDUCE_MAX: _greatest,
    Operator.REDUCE_MIN: _least,
}
