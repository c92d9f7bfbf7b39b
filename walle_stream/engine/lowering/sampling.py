"""Samples at computed points: GridSample and AffineGrid; and CenterCropPad."""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_first
from walle_stream.engine.lowering.interpolation import CUBIC_A, Floats, cubic_weights
from walle_stream.engine.lowering.points import (
    Taps,
    bordered_index,
    linear_taps,
    read_points,
    rows_of,
)
from walle_stream.engine.lowering.precision import (
    narrowed,
    require_floating,
    weighted_dtype,
    widened,
)
from walle_stream.engine.lowering.registry import Call, Kind, Result, axis_of, lowers
from walle_stream.engine.lowering.windows import spatial_sizes
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import FLOAT32, check_size, check_table
from walle_stream.errors import LoweringError, ShapeError

_MODES = {
    "bilinear": "linear", "linear": "linear", "nearest": "nearest",
    "bicubic": "cubic", "cubic": "cubic",
}  # fmt: skip
"""Canonical names of modes; the first versions had names for only two axes."""

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@lowers("GridSample", domain="com.microsoft")
@lowers("GridSample", kind=Kind.COMPOSITE)
def _grid_sample(call: Call) -> Result:
    x, grid, builder = call.tensor(0), require_floating(call.tensor(1), "the grid"), call.builder
    sizes = spatial_sizes(x)
    rank = len(sizes)
    if grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ShapeError(f"a grid of shape {list(grid.shape)} for shape {list(x.shape)}")
    wanted, padding = call.text("mode", "linear"), call.text("padding_mode", "zeros")
    mode = _MODES.get(wanted)
    if mode is None or padding not in {"zeros", "border", "reflection"}:
        raise LoweringError(f"mode {wanted!r} with padding_mode {padding!r} is unknown")
    if not x.size or not grid.size:
        shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
        if prod(shape):
            raise ShapeError(f"shape {list(x.shape)} has no elements to be sampled")
        return builder.raster([x], shape, [])
    dtype = x.dtype if mode == "nearest" else weighted_dtype(x.dtype, grid.dtype)
    is_wide = mode != "nearest" and dtype != FLOAT32
    points = builder.cast(grid, np.float64) if is_wide else widened(builder, grid)
    corners = bool(call.number("align_corners", 0))
    border = _TAPS[mode] if padding == "zeros" else 0
    rows = rows_of(builder, builder.cast(x, dtype), border)
    axes = []
    for axis, size in enumerate(sizes):
        # the last coordinate of a point belongs to the first axis
        at = _coordinate(builder, points, rank - 1 - axis, size, corners=corners)
        sampler = _Sampler(builder, mode, padding, size, border, corners)
        axes.append(sampler.taps(at))
    first = np.arange(x.shape[0]).reshape(-1, *(1,) * rank) * prod(rows.sizes)
    base = None if len(first) == 1 else builder.constant(first)
    result = read_points(builder, rows, axes, base)
    return channels_first(
        builder, narrowed(builder, result, x.dtype) if dtype != x.dtype else result
    )


def _coordinate(
    builder: Builder, points: Tensor, number: int, size: int, *, corners: bool
) -> Tensor:
    # maps -1 .. 1 to 0 .. size - 1 (``corners``), or to -0.5 .. size - 0.5
    own = builder.reshape(
        moves.slice_axis(builder, points, points.rank - 1, number, number + 1), points.shape[:-1]
    )
    half = (size - 1) / 2 if corners else size / 2
    return builder.add(builder.mul(own, half), (size - 1) / 2)


class _Sampler:
    def __init__(
        self, builder: Builder, mode: str, padding: str, size: int, border: int, corners: bool
    ) -> None:
        self._builder = builder
        self._mode = mode
        self._padding = padding
        self._size = size
        self._border = border
        self._bounds = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)

    def taps(self, at: Tensor) -> Taps:
        builder = self._builder
        if self._mode == "nearest":
            at = builder.round(at)
        at = self._inside(at)
        if self._padding == "zeros" and self._mode == "linear":
            return linear_taps(builder, at, self._size, self._border)
        if self._mode == "nearest":
            return Taps(self._indices(at, (0,)), (None,))
        low = builder.floor(at)
        part = builder.sub(at, low)
        if self._mode == "linear":
            return Taps(self._indices(low, (0, 1)), (builder.sub(1, part), part))
        weights = cubic_weights(builder, part, CUBIC_A)
        return Taps(self._indices(low, (-1, 0, 1, 2)), weights)

    def _inside(self, at: Tensor) -> Tensor:
        builder, (low, high) = self._builder, self._bounds
        if self._padding == "zeros":
            return at
        if self._padding == "reflection":
            return self._reflected(at)
        limited = builder.clip(at, 0, self._size - 1)
        if self._mode != "cubic":
            return limited
        # points between the border and the middle of its element stay: a cubic depends on them
        outside = builder.logical_or(builder.less(at, low), builder.less(high, at))
        return builder.select(outside, limited, at)

    def _reflected(self, at: Tensor) -> Tensor:
        builder, (low, high) = self._builder, self._bounds
        span = high - low
        if not span:
            return builder.mul(at, 0)
        # folded: up to one bound and back to the other
        cycle = builder.mod(builder.sub(at, low), 2 * span)
        back = builder.abs(builder.sub(cycle, span))
        return builder.sub(high, back)

    def _indices(self, low: Tensor, offsets: tuple[int, ...]) -> list[Tensor]:
        builder = self._builder
        if self._padding == "zeros":
            shifted = builder.add(low, offsets[0]) if offsets[0] else low
            first = bordered_index(builder, shifted, self._size, self._border, taps=self._border)
            return [builder.add(first, n) if n else first for n in range(len(offsets))]
        results = []
        for offset in offsets:
            at = builder.add(low, offset) if offset else low
            if self._padding == "reflection" and self._mode != "nearest":
                at = self._reflected(at)
            results.append(builder.clip(builder.cast(at, np.int64), 0, self._size - 1))
        return results


@lowers("AffineGrid", kind=Kind.COMPOSITE)
def _affine_grid(call: Call) -> Result:
    theta, size, builder = require_floating(call.tensor(0)), call.numbers(1) or (), call.builder
    rank = len(size) - 2
    if rank < 1 or theta.shape != (size[0], rank, rank + 1):
        raise ShapeError(f"theta of shape {list(theta.shape)} for a size {list(size)}")
    spatial = check_size(size[2:], "the grid")
    check_size((size[0], *spatial, rank), "the grid")
    corners = bool(call.number("align_corners", 0))
    wide = widened(builder, theta)

    def column(number: int) -> Tensor:
        # the weight of one element coordinate in each coordinate of a point: (N, 1, rank)
        own = moves.slice_axis(builder, wide, 2, number, number + 1)
        return builder.reshape(own, (size[0], 1, rank))

    result = builder.reshape(column(rank), (size[0], *(1,) * rank, rank))
    for axis, count in enumerate(spatial):
        check_table((count,), "the grid")
        at = _evenly(count, corners=corners).astype(wide.dtype).reshape(1, count, 1)
        # the first coordinate of a point belongs to the last axis
        moved = builder.mul(column(rank - 1 - axis), builder.constant(at))
        shape = [1] * rank
        shape[axis] = count
        result = builder.add(result, builder.reshape(moved, (size[0], *shape, rank)))
    return builder.cast(result, theta.dtype)


def _evenly(count: int, *, corners: bool) -> Floats:
    number = np.arange(count, dtype=np.float64)
    if corners:
        return number * (2 / (count - 1) if count > 1 else 0) - 1
    return (number * 2 + 1) / max(count, 1) - 1


@lowers("CenterCropPad", kind=Kind.TRANSFORM)
def _center_crop_pad(call: Call) -> Result:
    x, wanted = call.tensor(0), call.numbers(1) or ()
    named = call.list("axes")
    axes = range(x.rank) if named is None else [axis_of(number, x.rank) for number in named]
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        raise ShapeError(f"{list(wanted)} for the axes {list(axes)} of shape {list(x.shape)}")
    before, after = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, wanted, strict=True):
        spare = size - x.shape[axis]
        # an odd element is padded, or cropped, at the end
        before[axis] = spare // 2 if spare > 0 else -(-spare // 2)
        after[axis] = spare - before[axis]
    return moves.pad(call.builder, x, before, after, None)
