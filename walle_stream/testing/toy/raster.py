"""The raster, which moves rows of regions as slices of lists."""

from collections.abc import Mapping, Sequence
from math import prod
from operator import add
from typing import Any

from walle_stream.engine.program import DType
from walle_stream.engine.rules import BOOL, is_floating, is_integer
from walle_stream.testing.toy.elements import Elements, Value, fitted


def raster(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Move elements; see ``engine.region``."""
    shape, dtype = parameters["shape"], parameters["dtype"]
    output = [_fill(parameters.get("fill"), dtype)] * prod(shape)
    for region in parameters["regions"]:
        if not region.count:
            continue
        source = inputs[region.input].elements
        size, reads, writes = (
            [*region.size],
            [*region.source.strides],
            [*region.destination.strides],
        )
        # the longest axis becomes a slice, the others a loop
        axis = max(range(len(size)), key=size.__getitem__, default=None)
        row = (1, 0, 0) if axis is None else (size.pop(axis), reads.pop(axis), writes.pop(axis))
        starts = zip(
            addresses(size, reads, region.source.offset),
            addresses(size, writes, region.destination.offset),
            strict=True,
        )
        for start, target in starts:
            moved = _row(source, start, row[1], row[0])
            there = _slice(target, row[2], row[0])
            if parameters.get("accumulate"):
                moved = fitted(map(add, output[there], moved), dtype)
            output[there] = moved
    return Value(tuple(shape), dtype, output)


def addresses(size: Sequence[int], strides: Sequence[int], offset: int = 0) -> list[int]:
    """Return the address of every coordinate of a box.

    Args:
        size: Size of the box.
        strides: One stride per axis.
        offset: Address of coordinate 0.

    Returns:
        Addresses in the order of the coordinates, with the last axis the fastest.
    """
    found = [offset]
    for count, stride in zip(size, strides, strict=True):
        found = [base + number * stride for base in found for number in range(count)]
    return found


def zero(dtype: DType) -> Any:
    """Return a dtype's zero as a scalar; the empty text for strings."""
    if dtype == BOOL:
        return False
    if is_integer(dtype):
        return 0
    return 0.0 if is_floating(dtype) else ""


def _fill(fill: Any, dtype: DType) -> Any:
    kind = type(zero(dtype))
    return fitted([zero(dtype) if fill is None else kind(fill)], dtype)[0]


def _slice(start: int, stride: int, count: int) -> slice:
    if count == 1:
        return slice(start, start + 1)
    stop = start + stride * count
    # a negative stop would count from the end
    return slice(start, stop if stop >= 0 else None, stride)


def _row(source: Elements, start: int, stride: int, count: int) -> Elements:
    if not stride:
        return [source[start]] * count
    return source[_slice(start, stride, count)]
