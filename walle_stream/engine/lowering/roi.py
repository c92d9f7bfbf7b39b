"""Regions of interest, which are boxes that a model computes: RoiAlign, MaxRoiPool."""

from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_first, channels_last
from walle_stream.engine.lowering.points import Taps, first_rows, read_points, rows_of
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import spatial_sizes
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import check_size, check_table
from walle_stream.errors import LoweringError, ShapeError

_CANDIDATES = 7
"""Largest number of samples that weigh on a row: at least half a row apart, in two rows."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Bins of all boxes along one axis; tensors have one number per box, ``(boxes, 1)``."""

    size: int
    bins: int
    start: Tensor
    width: Tensor
    grid: Tensor
    """Number of samples of a bin, as a floating-point number."""


@lowers("RoiAlign", kind=Kind.COMPOSITE)
def _roi_align(call: Call) -> Result:
    x, rois, batch = require_floating(call.tensor(0)), call.tensor(1), call.tensor(2)
    builder, image = call.builder, spatial_sizes(x, 2)
    if rois.rank != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:  # noqa: PLR2004
        raise ShapeError(f"boxes of shape {list(rois.shape)}, of images {list(batch.shape)}")
    bins = (call.number("output_height", 1), call.number("output_width", 1))
    mode, ratio = call.text("mode", "avg"), call.number("sampling_ratio", 0)
    if mode not in {"avg", "max"} or ratio < 0 or min(bins) < 1:
        raise LoweringError(f"mode {mode!r}, sampling_ratio {ratio} or output size {bins} is wrong")
    shape = check_size((rois.shape[0], x.shape[1], *bins), "the output")
    if 0 in shape or not prod(image):
        return builder.raster([x], shape, [], 0)
    wide = widened(builder, x)
    corners = builder.cast(rois, wide.dtype)
    axes = [
        _bins_of(call, corners, axis=axis, size=size, bins=count)
        for axis, size, count in zip((1, 0), image, bins, strict=True)
    ]
    base = first_rows(builder, batch, x.shape[0], prod(image))
    if mode == "avg" and not ratio:
        result = _averaged(builder, wide, batch, axes)
    else:
        result = _sampled(builder, wide, base, axes, ratio, is_greatest=mode == "max")
    return channels_first(builder, builder.cast(result, x.dtype))


def _bins_of(call: Call, corners: Tensor, *, axis: int, size: int, bins: int) -> _Axis:
    builder, ratio = call.builder, call.number("sampling_ratio", 0)
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"  # noqa: PLR2004
    modes = ("half_pixel", "output_half_pixel")
    mode = call.choice("coordinate_transformation_mode", modes, default)
    scaled = builder.mul(corners, call.real("spatial_scale", 1.0))
    start = moves.slice_axis(builder, scaled, 1, axis, axis + 1)
    length = builder.sub(moves.slice_axis(builder, scaled, 1, axis + 2, axis + 3), start)
    if mode == "half_pixel":
        start = builder.sub(start, 0.5)
    else:
        length = builder.maximum(length, 1)
    width = builder.div(length, bins)
    grid = builder.ceil(width)
    if ratio:
        grid = builder.as_tensor(float(ratio), width)
    return _Axis(size, bins, start, width, grid)


def _sampled(
    builder: Builder, x: Tensor, base: Tensor, axes: list[_Axis], ratio: int, *, is_greatest: bool
) -> Tensor:
    if not ratio:
        # the number of points depends on the boxes, so their values must be known here
        most = (builder.max(axis.grid, range(axis.grid.rank), keep=False) for axis in axes)
        counts = [max(int(builder.value(count)), 1) for count in most]
    else:
        counts = [ratio, ratio]
    taps = [
        _sample_taps(builder, axis, count, lead)
        for axis, count, lead in zip(axes, counts, (False, True), strict=True)
    ]
    combine = builder.maximum if is_greatest else None
    samples = read_points(builder, rows_of(builder, x), taps, base, combine=combine)
    apart = builder.reshape(
        samples,
        (samples.shape[0], axes[0].bins, counts[0], axes[1].bins, counts[1], samples.shape[-1]),
    )
    if not is_greatest:
        total = builder.sum(apart, (2, 4), keep=False)
        return builder.div(total, float(counts[0] * counts[1]))
    result = builder.max(apart, (2, 4), keep=False)
    if ratio:
        return result
    some = builder.less(0, builder.mul(*(builder.maximum(axis.grid, 0) for axis in axes)))
    return builder.select(builder.reshape(some, (samples.shape[0], 1, 1, 1)), result, 0)


def _sample_taps(builder: Builder, axis: _Axis, count: int, is_last: bool) -> Taps:
    # samples are evenly spaced over all bins of a box
    check_table((axis.bins, count), "the samples")
    numbers = np.tile(np.arange(count), axis.bins).reshape(1, -1)
    first = np.repeat(np.arange(axis.bins), count).reshape(1, -1)
    dtype = axis.start.dtype
    sample = builder.constant(numbers.astype(dtype))
    if axis.grid.rank:
        # a bin with fewer samples repeats its last one
        sample = builder.minimum(sample, builder.maximum(builder.sub(axis.grid, 1), 0))
    pace = builder.div(axis.width, builder.maximum(axis.grid, 1))
    at = builder.add(
        builder.add(axis.start, builder.mul(builder.constant(first.astype(dtype)), axis.width)),
        builder.mul(builder.add(sample, 0.5), pace),
    )
    boxes, points = at.shape
    at = builder.reshape(at, (boxes, 1, points) if is_last else (boxes, points, 1))
    inside = _is_inside(builder, at, axis.size)
    held = builder.clip(at, 0, axis.size - 1)
    low = builder.floor(held)
    part = builder.sub(held, low)
    index = builder.clip(builder.cast(low, np.int64), 0, axis.size - 1)
    return Taps(
        (index, builder.minimum(builder.add(index, 1), axis.size - 1)),
        [builder.select(inside, weight, 0) for weight in (builder.sub(1, part), part)],
    )


def _is_inside(builder: Builder, at: Tensor, size: int) -> Tensor:
    return builder.logical_and(builder.less_equal(-1, at), builder.less_equal(at, size))


def _averaged(builder: Builder, x: Tensor, batch: Tensor, axes: list[_Axis]) -> Tensor:
    # for any number of samples, the average of a bin is a product of row and column weights
    n, channels, height, width = x.shape
    rows, columns = (_row_weights(builder, axis) for axis in axes)
    boxes, bins, _ = rows.shape
    own = builder.equal(
        builder.reshape(builder.cast(batch, np.int64), (boxes, 1, 1, 1)),
        builder.constant(np.arange(n, dtype=np.int64).reshape(1, 1, n, 1)),
    )
    spread = builder.select(own, builder.reshape(rows, (boxes, bins, 1, height)), 0)
    check_size((boxes, bins, width, channels), "the rows of the boxes")
    joined = builder.matmul(
        builder.reshape(spread, (boxes * bins, n * height)),
        builder.reshape(channels_last(builder, x), (n * height, width * channels)),
    )
    return builder.matmul(
        builder.reshape(columns, (boxes, 1, axes[1].bins, width)),
        builder.reshape(joined, (boxes, bins, width, channels)),
    )


def _row_weights(builder: Builder, axis: _Axis) -> Tensor:
    # the weight of each row of the image in the average of each bin: (boxes, bins, rows)
    dtype, boxes = axis.start.dtype, axis.start.shape[0]
    check_size((boxes, axis.bins, axis.size, _CANDIDATES), "the weights")

    def number(values: int, axis: int) -> Tensor:
        shape = [1, 1, 1, 1]
        shape[axis] = values
        return builder.constant(np.arange(values).reshape(shape).astype(dtype))

    start, grid, width = (
        builder.reshape(tensor, (boxes, 1, 1, 1)) for tensor in (axis.start, axis.grid, axis.width)
    )
    pace = builder.div(width, builder.maximum(grid, 1))
    first = builder.mul(number(axis.bins, 1), grid)
    row = number(axis.size, 2)
    near = builder.div(builder.sub(builder.sub(row, 1), start), pace)
    near = builder.maximum(builder.floor(builder.sub(near, 0.5)), first)
    sample = builder.add(near, number(_CANDIDATES, 3))
    at = builder.add(start, builder.mul(builder.add(sample, 0.5), pace))
    held = builder.clip(at, 0, axis.size - 1)
    distance = builder.abs(builder.sub(held, row))
    weight = builder.maximum(builder.sub(1, distance), 0)
    is_sample = builder.less(sample, builder.add(first, grid))
    counted = builder.logical_and(_is_inside(builder, at, axis.size), is_sample)
    total = builder.sum(builder.select(counted, weight, 0), (3,), keep=False)
    return builder.div(total, builder.reshape(builder.maximum(grid, 1), (boxes, 1, 1)))


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
    scaled = builder.mul(wide, call.real("spatial_scale", 1.0))
    # rounded, halves away from zero
    magnitude = builder.floor(builder.add(builder.abs(scaled), 0.5))
    scaled = builder.mul(magnitude, builder.sign(scaled))
    ranges = [
        _bin_range(builder, scaled, axis=axis, size=size, bins=count)
        for axis, size, count in zip((2, 1), image, bins, strict=True)
    ]
    base = first_rows(builder, batch, x.shape[0], prod(image))
    return channels_first(builder, _greatest_of_ranges(builder, x, base, ranges))


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
    low = builder.floor(builder.mul(builder.constant(numbers), width))
    high = builder.ceil(builder.mul(builder.constant(numbers + 1), width))
    first, last = (
        builder.clip(builder.cast(builder.add(bound, start), np.int64), 0, size)
        for bound in (low, high)
    )
    return _Range(size, first, last)


def _greatest_of_ranges(builder: Builder, x: Tensor, base: Tensor, ranges: list[_Range]) -> Tensor:
    # a table has the maximum of each 2^i by 2^j block; four blocks cover a bin
    last = channels_last(builder, x)
    levels = [extent.size.bit_length() for extent in ranges]
    tables = _tables(builder, last, levels)
    rows = builder.reshape(tables, (prod(tables.shape[:-1]), x.shape[1]))
    axes = []
    for number, extent in enumerate(ranges):
        length = builder.maximum(builder.sub(extent.stop, extent.start), 1)
        level = builder.constant(np.zeros((), np.int64))
        for power in range(1, levels[number]):
            is_long = builder.less_equal(1 << power, length)
            level = builder.add(level, builder.cast(is_long, np.int64))
        span = builder.binary(Operator.SHIFT_LEFT, 1, level)
        first = builder.minimum(extent.start, extent.size - 1)
        second = builder.maximum(builder.sub(builder.add(first, length), span), 0)
        axes.append((level, first, second))
    n, height, width = last.shape[:3]
    (high, *tops), (wide, *lefts) = (
        tuple(_beside(builder, tensor, number) for tensor in axis)
        for number, axis in enumerate(axes)
    )
    table = builder.add(builder.mul(high, levels[1]), wide)
    base = builder.add(builder.mul(table, n * height * width), base)
    addresses = (
        builder.add(builder.add(base, builder.mul(top, width)), left)
        for top in tops for left in lefts
    )  # fmt: skip
    result = reduce(builder.maximum, (take(builder, rows, address) for address in addresses))
    some = [builder.less(extent.start, extent.stop) for extent in ranges]
    is_filled = builder.logical_and(
        *(_beside(builder, tensor, number) for number, tensor in enumerate(some))
    )
    return builder.select(moves.expand_axis(builder, is_filled, 3), result, 0)


def _beside(builder: Builder, x: Tensor, number: int) -> Tensor:
    # rows before columns
    boxes, bins = x.shape if x.rank else (1, 1)
    return builder.reshape(x, (boxes, 1, bins) if number else (boxes, bins, 1))


def _tables(builder: Builder, x: Tensor, levels: list[int]) -> Tensor:
    # tables of shape (levels, levels, N, H, W, C)
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
    # blocks that reach beyond the end are never read
    size = x.shape[axis]
    kept = moves.slice_axis(builder, x, axis, 0, size - step)
    other = moves.slice_axis(builder, x, axis, step, size)
    behind = [step if number == axis else 0 for number in range(x.rank)]
    return moves.pad(builder, builder.maximum(kept, other), (0,) * x.rank, behind)
