"""Pad: borders of one value, or of elements near the edge of a tensor."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.registry import Call, Result, axis_of, lowers
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.engine.rules import TEXT, check_size, check_table
from walle_stream.errors import DTypeError, ShapeError

type _Run = tuple[int, int, int, int]
"""A run along an axis: first coordinate in the output, count, first one in the input, its step."""

_BY_INPUT: Final = 11
"""The opset that made the widths an input."""
_REGIONS_MAX: Final = 256
_TABLES_FROM: Final = 64
"""An axis with more runs than this, which is short and has a long border, is read by indices."""


@lowers("Pad")
def _pad(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    before, after = _widths(call, x)
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    check_size(shape, "the padded tensor")
    mode = call.choice("mode", ("constant", "edge", "reflect", "wrap"), "constant")
    if mode == "constant":
        return _pad_constant(call, x, before, after)
    cut = [min(0, width) for width in before], [min(0, width) for width in after]
    if any(n + a + b < 0 for n, a, b in zip(x.shape, *cut, strict=True)):
        raise ShapeError(f"shape {list(x.shape)} cut by {list(before)} and {list(after)}")
    kept = moves.pad(builder, x, *cut)
    before, after = [max(0, width) for width in before], [max(0, width) for width in after]
    for size, first, last in zip(kept.shape, before, after, strict=True):
        if not size and first + last:
            raise ShapeError(f"mode {mode!r} has no element to repeat in shape {list(kept.shape)}")
    return _pad_repeating(builder, kept, before, after, mode)


def _widths(call: Call, x: Tensor) -> tuple[list[int], list[int]]:
    if call.version >= _BY_INPUT:
        widths = call.numbers(1)
    else:
        widths = call.list("pads" if call.version > 1 else "paddings")
    axes = call.numbers(3)
    axes = tuple(range(x.rank)) if axes is None else tuple(axis_of(index, x.rank) for index in axes)
    if widths is None or len(widths) != 2 * len(axes) or len(set(axes)) != len(axes):
        count = "no" if widths is None else len(widths)
        raise ShapeError(f"{count} widths for axes {list(axes)} of shape {list(x.shape)}")
    before, after = [0] * x.rank, [0] * x.rank
    for number, axis in enumerate(axes):
        before[axis], after[axis] = widths[number], widths[number + len(axes)]
    return before, after


def _pad_constant(call: Call, x: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    builder = call.builder
    if call.version < _BY_INPUT:
        value = np.array(call.real("value", 0.0)).astype(x.dtype)
        return moves.pad(builder, x, before, after, _plain(value))
    border = call.optional(2)
    if border is None:
        fill: Any = "" if x.dtype == TEXT else 0
        return moves.pad(builder, x, before, after, fill)
    if border.size != 1 or border.dtype != x.dtype:
        raise DTypeError(f"the border is {border}, not one element of {x.dtype.name}")
    if border.data is not None:
        return moves.pad(builder, x, before, after, _plain(border.data))
    return _bordered(builder, x, before, after, border)


def _plain(value: Array) -> Any:
    one = value.reshape(-1)[0]
    return one if value.dtype == TEXT else one.item()


def _bordered(
    builder: Builder, x: Tensor, before: Sequence[int], after: Sequence[int], value: Tensor
) -> Tensor:
    # the border as boxes: both ends of each axis, over the kept part of the axes before it
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    inner = [
        (min(max(first, 0), total), max(min(first + size, total), 0))
        for first, size, total in zip(before, x.shape, shape, strict=True)
    ]
    inner = [(low, max(low, high)) for low, high in inner]
    own, target = strides_of(x.shape), strides_of(shape)
    boxes: list[tuple[list[tuple[int, int]], bool]] = [(inner, True)]
    for axis, (low, high) in enumerate(inner):
        whole = [(0, total) for total in shape[axis + 1 :]]
        boxes += [
            ([*inner[:axis], span, *whole], False) for span in ((0, low), (high, shape[axis]))
        ]
    regions = []
    for box, is_inner in boxes:
        size = tuple(high - low for low, high in box)
        destination = View(
            sum(low * step for (low, _), step in zip(box, target, strict=True)), target
        )
        starts = [low - first for (low, _), first in zip(box, before, strict=True)]
        offset = sum(start * step for start, step in zip(starts, own, strict=True))
        source = View(offset, own) if is_inner else View(0, (0,) * len(size))
        regions.append(Region(size, source, destination, 0 if is_inner else 1))
    return builder.raster([x, value], shape, regions)


def _pad_repeating(
    builder: Builder, x: Tensor, before: Sequence[int], after: Sequence[int], mode: str
) -> Tensor:
    padded = [axis for axis in range(x.rank) if before[axis] or after[axis]]
    runs: list[list[_Run]] = [[(0, size, 0, 1)] for size in x.shape]
    for axis in padded:
        size, first, last = x.shape[axis], before[axis], after[axis]
        if mode != "edge" and (first + last) // size > _TABLES_FROM:
            check_table((size + first + last,), "a border")
            indices = builder.constant(_sources(size, first, last, mode))
            x = take(builder, x, indices, axis)
            runs[axis] = [(0, size + first + last, 0, 1)]
        else:
            runs[axis] = _runs(size, first, last, mode)
    if prod(map(len, runs)) <= _REGIONS_MAX:
        return _placed(builder, x, runs)
    for axis in padded:
        one = [runs[at] if at == axis else [(0, n, 0, 1)] for at, n in enumerate(x.shape)]
        x = _placed(builder, x, one)
    return x


def _sources(size: int, before: int, after: int, mode: str) -> Array:
    positions = np.arange(-before, size + after)
    if mode == "wrap":
        return positions % size
    period = max(2 * (size - 1), 1)
    folded = positions % period
    return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(positions)


def _runs(size: int, before: int, after: int, mode: str) -> list[_Run]:
    if mode == "edge" or size == 1:
        return [(0, before, 0, 0), (before, size, 0, 1), (before + size, after, size - 1, 0)]
    # mirrored runs omit the turning points, which belong to the neighbouring runs
    length = size if mode == "wrap" else size - 1
    results: list[_Run] = []
    for number in range(-before // length, (size + after) // length + 1):
        low = max(number * length, -before)
        high = min((number + 1) * length, size + after)
        if low >= high:
            continue
        inside = low - number * length
        if mode == "wrap" or number % 2 == 0:
            results.append((low + before, high - low, inside, 1))
        else:
            results.append((low + before, high - low, length - inside, -1))
    return results


def _placed(builder: Builder, x: Tensor, runs: Sequence[Sequence[_Run]]) -> Tensor:
    shape: Shape = tuple(sum(count for _, count, _, _ in axis_runs) for axis_runs in runs)
    own, target = strides_of(x.shape), strides_of(shape)
    regions = []
    for chosen in product(*runs):
        start = sum(run[0] * step for run, step in zip(chosen, target, strict=True))
        offset = sum(run[2] * step for run, step in zip(chosen, own, strict=True))
        strides = tuple(run[3] * step for run, step in zip(chosen, own, strict=True))
        size = tuple(run[1] for run in chosen)
        regions.append(Region(size, View(offset, strides), View(start, target)))
    return builder.raster([x], shape, regions)
