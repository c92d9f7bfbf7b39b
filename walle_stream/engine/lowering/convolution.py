"""Convolutions: matrix products over patches, channels-last.

The patches of all windows are one overlapping view of the padded input; MNN and Walle (2022) call
this im2col by raster. Between layers the moves to and from channels-last cancel.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import product
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import (
    channels_first,
    channels_last,
    padded,
    patches,
    tap_view,
)
from walle_stream.engine.lowering.points import linear_taps, read_points, rows_of
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import Window, spatial_sizes, window_of
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.engine.rules import is_floating
from walle_stream.errors import LoweringError, ShapeError

PATCHES_MAX: Final = 1 << 22
"""Elements of patches that are gathered at once, so that the product finds them in cache. More
patches are processed slab by slab. Scales are not folded into slabs, but most images need one."""

_SLABS_MAX: Final = 1 << 12
_SLABS_WANTED: Final = 1 << 9
"""Number of slabs beyond which slabs grow instead."""

_SLAB_MAX: Final = 1 << 25
_DEPTHWISE_TAPS_MAX: Final = 64


@lowers("Conv", kind=Kind.COMPOSITE)
def _conv(call: Call) -> Result:
    x, w = require_floating(call.tensor(0)), call.tensor(1)
    window = window_of(call, spatial_sizes(x), w.shape[2:])
    return convolve(call.builder, x, w, window, call.number("group", 1), call.optional(2))


def convolve(
    builder: Builder, x: Tensor, w: Tensor, window: Window, group: int, bias: Tensor | None = None
) -> Tensor:
    """Convolve ``(N, C, *spatial)`` of any dtype with ``(O, C / group, *kernel)``.

    The window slides over ``x``, and the bias is ``(O,)``. Checks the shapes, and returns
    ``(N, O, *output)``.
    """
    _check_weights(x.shape[1], w.shape, x.rank - 2, group)
    result = convolved(builder, channels_last(builder, x), w, window, group)
    return channels_first(builder, biased(builder, result, bias))


def _check_weights(channels: int, shape: Shape, rank: int, group: int) -> None:
    # the shape must be (O, C / group, *kernel)
    if len(shape) != rank + 2:
        raise ShapeError(f"weights of shape {list(shape)} for {rank} spatial axes")
    if group < 1 or shape[0] % group or channels != shape[1] * group:
        raise ShapeError(
            f"weights of shape {list(shape)} in {group} groups for {channels} channels"
        )


def biased(builder: Builder, x: Tensor, bias: Tensor | None) -> Tensor:
    """Add a bias ``(C,)``, one number per channel, to a channels-last tensor.

    Raises:
        ShapeError: The bias has another shape.
    """
    if bias is None:
        return x
    if bias.shape != x.shape[-1:]:
        raise ShapeError(f"a bias of shape {list(bias.shape)} for {x.shape[-1]} channels")
    return builder.add(x, bias)


def convolved(builder: Builder, x: Tensor, w: Tensor, window: Window, group: int) -> Tensor:
    """Convolve ``(N, *spatial, C)`` with ``(O, C / group, *kernel)`` to ``(N, *output, O)``."""
    shape = (x.shape[0], *window.output, w.shape[0])
    if 0 in shape:
        return builder.raster([x], shape, [])
    border = padded(builder, x, window, 0)
    if x.shape[-1] == group > 1 and window.taps <= _DEPTHWISE_TAPS_MAX:
        return _depthwise(builder, border, w, window)
    return _multiplied_patches(builder, border, _packed(builder, w, group), window, group)


def _packed(builder: Builder, w: Tensor, group: int) -> Tensor:
    # the matrix that multiplies patches: (group, taps * C / group, O / group), without the first
    # axis if group is 1
    count, depth, *kernel = w.shape
    split = builder.reshape(w, (group, count // group, depth, *kernel))
    moved = moves.transpose(builder, split, (0, *range(3, split.rank), 2, 1))
    matrix = (prod(kernel) * depth, count // group)
    return builder.reshape(moved, matrix if group == 1 else (group, *matrix))


def _multiplied_patches(
    builder: Builder, x: Tensor, matrix: Tensor, window: Window, group: int
) -> Tensor:
    # products of all windows of a padded tensor and a packed matrix: (N, *output, O)
    positions, depth = (x.shape[0], *window.output), matrix.shape[-1]
    # with one tap and stride 1 the patches are the input itself
    least = PATCHES_MAX if window.taps > 1 or max(window.strides, default=1) > 1 else _SLAB_MAX
    slabs = list(_slabs(positions, window.taps * x.shape[-1], least))
    parts = [
        builder.matmul(patches(builder, x, window, starts, sizes, group), matrix)
        for starts, sizes in slabs
    ]
    shape = (*positions, group * depth)
    if len(slabs) == group == 1:
        return builder.reshape(parts[0], shape)
    target = strides_of(shape)
    regions = [
        Region(
            (group, *sizes, depth),
            View(0, strides_of((group, *sizes, depth))),
            View(
                sum(a * b for a, b in zip(starts, target, strict=False)),
                (depth, *target),
            ),
            number,
        )
        for number, (starts, sizes) in enumerate(slabs)
    ]
    return builder.raster(parts, shape, regions)


def _slabs(positions: Shape, elements: int, least: int) -> Iterator[tuple[Shape, Shape]]:
    # a slab has whole trailing axes, a part of the axis before them, and one index of the others
    most = min(max(least, prod(positions) * elements // _SLABS_WANTED), _SLAB_MAX)
    left = max(1, most // max(elements, 1))
    steps = list(positions)
    for axis in reversed(range(len(positions))):
        steps[axis] = max(1, min(positions[axis], left))
        # equal sizes, so that the last slab is not a sliver
        steps[axis] = (
            -(-positions[axis] // -(-positions[axis] // steps[axis])) if positions[axis] else 1
        )
        left //= steps[axis]
        if steps[axis] < positions[axis]:
            left = 1
    counts = [-(-n // step) for n, step in zip(positions, steps, strict=True)]
    if prod(counts) > _SLABS_MAX:
        raise LoweringError(f"{prod(positions)} windows of {elements} elements are too many")
    for number in product(*map(range, counts)):
        starts = tuple(i * step for i, step in zip(number, steps, strict=True))
        yield (
            starts,
            tuple(
                min(step, n - start)
                for step, n, start in zip(steps, positions, starts, strict=True)
            ),
        )


def _depthwise(builder: Builder, x: Tensor, w: Tensor, window: Window) -> Tensor:
    # a matrix product would have vectors here, so each tap is multiplied and added instead
    channels, count = x.shape[-1], w.shape[0]
    many = count // channels
    is_float = is_floating(x.dtype)
    wide, weights = (widened(builder, operand) if is_float else operand for operand in (x, w))
    weights = builder.reshape(
        moves.transpose(builder, weights, (*range(2, w.rank), 0, 1)),
        (*window.kernel, channels, *((many,) if many > 1 else ())),
    )
    rank, row = len(window.kernel), weights.shape[len(window.kernel) :]

    def term(tap: Shape) -> Tensor:
        pixels = tap_view(builder, wide, window, tap)
        if many > 1:
            pixels = moves.expand_axis(builder, pixels, pixels.rank)
        starts, sizes = (*tap, *(0,) * len(row)), (*(1,) * rank, *row)
        factor = builder.reshape(moves.crop(builder, weights, starts, sizes), row)
        return builder.mul(pixels, factor)

    total = reduce(builder.add, map(term, product(*map(range, window.kernel))))
    result = builder.reshape(total, (*total.shape[: x.rank - 1], count))
    return builder.cast(result, x.dtype)


_BORDER = 2
"""Width of the border of zeros around the image; see ``points.linear_taps``."""


@lowers("DeformConv", kind=Kind.COMPOSITE)
def _deform_conv(call: Call) -> Result:
    x, w, builder = require_floating(call.tensor(0)), call.tensor(1), call.builder
    offset, mask = call.tensor(2), call.optional(4)
    group, parts = call.number("group", 1), call.number("offset_group", 1)
    sizes = spatial_sizes(x)
    _check_weights(x.shape[1], w.shape, len(sizes), group)
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
    # elements of the moved taps: (N * parts, taps, positions, C / parts)
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
    # channels split into (offset parts, channels of a part) and into (groups, channels of a group)
    n, parts, group = counts
    _, taps, positions, depth = elements.shape
    split = builder.reshape(elements, (n, parts, taps, positions, depth))
    joined = builder.reshape(
        moves.transpose(builder, split, (0, 3, 2, 1, 4)), (n * positions, taps, parts * depth)
    )
    rows = builder.reshape(joined, (n * positions, taps, group, parts * depth // group))
    matrix = _packed(builder, w, group)
    if group == 1:
        return builder.matmul(builder.reshape(rows, (n * positions, taps * parts * depth)), matrix)
    grouped = builder.reshape(
        moves.transpose(builder, rows, (2, 0, 1, 3)), (group, n * positions, matrix.shape[-2])
    )
    result = builder.matmul(grouped, matrix)
    return moves.transpose(builder, result, (1, 0, 2))
