"""MaxRoiPool: the greatest elements of boxes that a model computes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_first, channels_last
from walle_stream.engine.lowering.points import first_rows
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import spatial_sizes
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import check_size
from walle_stream.errors import ShapeError


@lowers("MaxRoiPool", kind=Kind.COMPOSITE)
def _max_roi_pool(call: Call) -> Result:
    x, rois, builder = require_floating(call.tensor(0)), call.tensor(1), call.builder
    image, bins = spatial_sizes(x, 2), call.list("pooled_shape") or ()
    if rois.rank != 2 or rois.shape[1] != 5:  # noqa: PLR2004  # an image and two corners
        raise ShapeError(f"boxes of shape {list(rois.shape)}; (boxes, 5) is expected")
    if len(bins) != 2 or min(bins) < 1:  # noqa: PLR2004
        raise ShapeError(f"pooled_shape {list(bins)} is not two positive numbers")
    shape = check_size((rois.shape[0], x.shape[1], *bins), "the output")
    if 0 in shape or not prod(image):
        return builder.raster([x], shape, [], 0)
    wide = widened(builder, rois)
    batch = builder.reshape(moves.slice_axis(builder, wide, 1, 0, 1), (rois.shape[0],))
    scaled = _rounded(builder, builder.mul(wide, call.real("spatial_scale", 1.0)))
    ranges = [
        _bin_range(builder, scaled, axis=axis, size=size, bins=count)
        for axis, size, count in zip((2, 1), image, bins, strict=True)
    ]
    base = first_rows(builder, batch, x.shape[0], prod(image))
    return channels_first(builder, _greatest_of_ranges(builder, x, base, ranges))


def _rounded(builder: Builder, x: Tensor) -> Tensor:
    # halves away from zero
    size = builder.unary(Operator.FLOOR, builder.add(builder.unary(Operator.ABS, x), 0.5))
    return builder.mul(size, builder.unary(Operator.SIGN, x))


@dataclass(frozen=True, slots=True)
class _Range:
    """Elements ``start .. stop - 1`` of one axis, int64, ``(boxes, bins)``."""

    size: int
    start: Tensor
    stop: Tensor


def _bin_range(builder: Builder, scaled: Tensor, *, axis: int, size: int, bins: int) -> _Range:
    start = moves.slice_axis(builder, scaled, 1, axis, axis + 1)
    stop = moves.slice_axis(builder, scaled, 1, axis + 2, axis + 3)
    length = builder.maximum(builder.add(builder.sub(stop, start), 1), 1)
    width = builder.div(length, bins)
    numbers = np.arange(bins).reshape(1, -1).astype(scaled.dtype)
    low = builder.unary(Operator.FLOOR, builder.mul(builder.constant(numbers), width))
    high = builder.unary(Operator.CEIL, builder.mul(builder.constant(numbers + 1), width))
    return _Range(
        size,
        *(
            builder.clip(builder.cast(builder.add(each, start), np.int64), 0, size)
            for each in (low, high)
        ),
    )


def _greatest_of_ranges(builder: Builder, x: Tensor, base: Tensor, ranges: list[_Range]) -> Tensor:
    # the greatest of each 2^i by 2^j elements is made once; a bin is covered by four of them
    last = channels_last(builder, x)
    levels = [each.size.bit_length() for each in ranges]
    tables = _tables(builder, last, levels)
    rows = builder.reshape(tables, (prod(tables.shape[:-1]), x.shape[1]))
    axes = []
    for number, each in enumerate(ranges):
        length = builder.maximum(builder.sub(each.stop, each.start), 1)
        level = builder.constant(np.zeros((), np.int64))
        for power in range(1, levels[number]):
            is_long = builder.binary(Operator.LESS_EQUAL, 1 << power, length)
            level = builder.add(level, builder.cast(is_long, np.int64))
        span = builder.binary(Operator.SHIFT_LEFT, 1, level)
        first = builder.minimum(each.start, each.size - 1)
        second = builder.maximum(builder.sub(builder.add(first, length), span), 0)
        axes.append((level, first, second))
    n, height, width = last.shape[:3]
    (high, *tops), (wide, *lefts) = (
        tuple(_beside(builder, each, number) for each in axis) for number, axis in enumerate(axes)
    )
    table = builder.add(builder.mul(high, levels[1]), wide)
    base = builder.add(builder.mul(table, n * height * width), base)
    result = None
    for top in tops:
        for left in lefts:
            address = builder.add(builder.add(base, builder.mul(top, width)), left)
            taken = take(builder, rows, address)
            result = taken if result is None else builder.maximum(result, taken)
    assert result is not None  # noqa: S101  # there are four
    some = [builder.less(each.start, each.stop) for each in ranges]
    is_filled = builder.binary(
        Operator.AND, *(_beside(builder, each, number) for number, each in enumerate(some))
    )
    return builder.select(moves.expand_axis(builder, is_filled, 3), result, 0)


def _beside(builder: Builder, x: Tensor, number: int) -> Tensor:
    # rows before columns
    boxes, bins = x.shape if x.rank else (1, 1)
    return builder.reshape(x, (boxes, 1, bins) if number else (boxes, bins, 1))


def _tables(builder: Builder, x: Tensor, levels: list[int]) -> Tensor:
    # of shape (levels, levels, N, H, W, C)
    columns = []
    tall = x
    for level in range(levels[0]):
        tall = tall if not level else _joined(builder, tall, 1, 1 << (level - 1))
        wide = tall
        for other in range(levels[1]):
            wide = wide if not other else _joined(builder, wide, 2, 1 << (other - 1))
            columns.append(wide)
    return moves.stack(builder, columns, 0)


def _joined(builder: Builder, x: Tensor, axis: int, step: int) -> Tensor:
    # what reaches beyond the end is never read
    size = x.shape[axis]
    kept = moves.slice_axis(builder, x, axis, 0, size - step)
    other = moves.slice_axis(builder, x, axis, step, size)
    behind = [step if number == axis else 0 for number in range(x.rank)]
    return moves.pad(builder, builder.maximum(kept, other), (0,) * x.rank, behind)
