"""DeformConv: a convolution whose taps are moved, each by numbers of its own."""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.convolution import biased, check_weights, packed
from walle_stream.engine.lowering.points import linear_taps, read_points, rows_of
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import Window, channels_first, spatial_sizes, window_of
from walle_stream.engine.program import Tensor
from walle_stream.errors import ShapeError

_BORDER = 2
"""Zeros around the image, see ``points.linear_taps``."""


@lowers("DeformConv", kind=Kind.COMPOSITE)
def _deform_conv(call: Call) -> Result:
    x, w, builder = require_floating(call.tensor(0)), call.tensor(1), call.builder
    offset, mask = call.tensor(2), call.optional(4)
    group, parts = call.number("group", 1), call.number("offset_group", 1)
    sizes = spatial_sizes(x)
    check_weights(x.shape[1], w.shape, len(sizes), group)
    window = window_of(call, sizes, w.shape[2:])
    if parts < 1 or x.shape[1] % parts:
        raise ShapeError(f"{x.shape[1]} channels in {parts} offset groups")
    n, rank = x.shape[0], len(sizes)
    taps = (n, parts * window.taps, *window.output)
    if offset.shape != (n, parts * window.taps * rank, *window.output):
        raise ShapeError(f"offsets of shape {list(offset.shape)} for {list(taps)} taps")
    if mask is not None and mask.shape != taps:
        raise ShapeError(f"a mask of shape {list(mask.shape)} for {list(taps)} taps")
    if not x.size or not w.size or not offset.size:
        empty = builder.raster([x], (n, *window.output, w.shape[0]), [], 0)
        return channels_first(builder, biased(builder, empty, call.optional(3)))
    elements = _moved_taps(builder, widened(builder, x), widened(builder, offset), window, parts)
    if mask is not None:
        factors = builder.reshape(
            widened(builder, mask), (n * parts, window.taps, prod(window.output), 1)
        )
        elements = builder.mul(elements, factors)
    result = _multiplied(builder, elements, widened(builder, w), (n, parts, group))
    shaped = builder.cast(builder.reshape(result, (n, *window.output, w.shape[0])), x.dtype)
    return channels_first(builder, biased(builder, shaped, call.optional(3)))


def _moved_taps(builder: Builder, x: Tensor, offset: Tensor, window: Window, parts: int) -> Tensor:
    # of shape (N * parts, taps, places, C / parts)
    n, rank, positions = x.shape[0], len(window.output), prod(window.output)
    rows = rows_of(
        builder, builder.reshape(x, (n * parts, x.shape[1] // parts, *x.shape[2:])), _BORDER
    )
    moved = builder.reshape(offset, (n * parts, window.taps, rank, positions))
    axes = []
    for axis, size in enumerate(window.sizes):
        own = moves.slice_axis(builder, moved, 2, axis, axis + 1)
        rest = np.indices((*window.kernel, *window.output))
        still = (
            rest[axis] * window.dilations[axis]
            + rest[rank + axis] * window.strides[axis]
            - window.before[axis]
        )
        at = builder.add(
            builder.reshape(own, (n * parts, window.taps, positions)),
            builder.constant(still.reshape(window.taps, positions).astype(offset.dtype)),
        )
        axes.append(linear_taps(builder, at, size, _BORDER))
    first = np.arange(n * parts, dtype=np.int64) * prod(rows.sizes)
    return read_points(builder, rows, axes, builder.constant(first.reshape(-1, 1, 1)))


def _multiplied(
    builder: Builder, elements: Tensor, w: Tensor, counts: tuple[int, int, int]
) -> Tensor:
    # channels are parts of offsets by channels of a part, and groups by channels of a group
    n, parts, group = counts
    _, taps, positions, depth = elements.shape
    split = builder.reshape(elements, (n, parts, taps, positions, depth))
    joined = builder.reshape(
        moves.transpose(builder, split, (0, 3, 2, 1, 4)), (n * positions, taps, parts * depth)
    )
    rows = builder.reshape(joined, (n * positions, taps, group, parts * depth // group))
    matrix = packed(builder, w, group)
    if group == 1:
        return builder.matmul(builder.reshape(rows, (n * positions, taps * parts * depth)), matrix)
    grouped = builder.reshape(
        moves.transpose(builder, rows, (2, 0, 1, 3)), (group, n * positions, matrix.shape[-2])
    )
    result = builder.matmul(grouped, matrix)
    return moves.transpose(builder, result, (1, 0, 2))
