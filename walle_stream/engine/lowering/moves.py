"""Common moves of elements as rasters, from which rules of every family are built."""

from collections.abc import Sequence
from math import prod
from typing import Any

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.errors import ShapeError


def transpose(builder: Builder, x: Tensor, order: Sequence[int]) -> Tensor:
    """Permute axes; ``order`` has the axis of ``x`` for each axis of the output.

    Raises:
        ShapeError: ``order`` does not name each axis once.
    """
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(f"axes {list(order)} do not permute the {x.rank} axes of {list(x.shape)}")
    own = strides_of(x.shape)
    return builder.view(x, [x.shape[axis] for axis in order], [own[axis] for axis in order])


def crop(
    builder: Builder,
    x: Tensor,
    starts: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Tensor:
    """Keep a box from ``starts``, with every ``steps``-th element; negative steps go backwards."""
    own = strides_of(x.shape)
    steps = steps or (1,) * x.rank
    offset = sum(start * stride for start, stride in zip(starts, own, strict=True))
    strides = [step * stride for step, stride in zip(steps, own, strict=True)]
    return builder.view(x, sizes, strides, offset)


def slice_axis(
    builder: Builder, x: Tensor, axis: int, start: int, stop: int, step: int = 1
) -> Tensor:
    """Keep coordinates ``start, start + step, ...`` below ``stop`` of an axis; step is positive."""
    sizes, starts, steps = list(x.shape), [0] * x.rank, [1] * x.rank
    sizes[axis], starts[axis], steps[axis] = len(range(start, stop, step)), start, step
    return crop(builder, x, starts, sizes, steps)


def unjoined(builder: Builder, x: Tensor, axis: int) -> list[Tensor]:
    """Return a slice for each coordinate of an axis; the axis stays, with size 1."""
    return [slice_axis(builder, x, axis, n, n + 1) for n in range(x.shape[axis])]


def concat(builder: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors of one dtype, whose shapes may differ only in ``axis``.

    Raises:
        ShapeError: The shapes differ elsewhere, or there are no tensors.
    """
    if not parts:
        raise ShapeError(f"no tensors to be joined along axis {axis}")
    first = parts[0]
    if len({(part.rank, *part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}) > 1:
        listed = ", ".join(str(list(part.shape)) for part in parts)
        raise ShapeError(f"shapes {listed} cannot be joined along axis {axis}")
    if len(parts) == 1:
        return first
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    target = strides_of(shape)
    regions, offset = [], 0
    for number, part in enumerate(parts):
        regions.append(
            Region(part.shape, View(0, strides_of(part.shape)), View(offset, target), number)
        )
        offset += part.shape[axis] * target[axis]
    return builder.raster(parts, shape, regions)


def stack(builder: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Stack tensors of one shape along a new axis of the output."""
    return concat(builder, [expand_axis(builder, part, axis) for part in parts], axis)


def expand_axis(builder: Builder, x: Tensor, axis: int) -> Tensor:
    """Insert an axis of size 1, which is ``axis`` of the output."""
    return builder.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def pad(
    builder: Builder, x: Tensor, before: Sequence[int], after: Sequence[int], fill: Any = 0
) -> Tensor:
    """Pad each axis with a border of one value, or crop it where a width is negative.

    Raises:
        ShapeError: An axis is cropped by more than its size.
    """
    if not any(before) and not any(after):
        return x
    shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
    if min(shape, default=0) < 0:
        raise ShapeError(f"shape {list(x.shape)} cut by {list(before)} and {list(after)}")
    starts = [max(0, -width) for width in before]
    targets = [max(0, width) for width in before]
    sizes = tuple(
        max(0, min(n - start, total - first))
        for n, start, total, first in zip(x.shape, starts, shape, targets, strict=True)
    )
    source, target = strides_of(x.shape), strides_of(shape)
    region = Region(sizes, View(_dot(starts, source), source), View(_dot(targets, target), target))
    return builder.raster([x], shape, [region], fill)


def flip(builder: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Reverse axes."""
    starts = [size - 1 if axis in axes else 0 for axis, size in enumerate(x.shape)]
    return crop(builder, x, starts, x.shape, [-1 if axis in axes else 1 for axis in range(x.rank)])


def found_size(x: Tensor, wanted: Sequence[int]) -> Shape:
    """Return a shape for ``x`` with the size for -1 filled in.

    Raises:
        ShapeError: More than one size is -1, or no size fits.
    """
    shape = list(wanted)
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise ShapeError(f"shape {shape} has more than one -1, or another negative size")
    if -1 in shape:
        rest = prod(size for size in shape if size != -1)
        if not rest or x.size % rest:
            raise ShapeError(f"shape {list(x.shape)} cannot become {shape}")
        shape[shape.index(-1)] = x.size // rest
    return tuple(shape)


def merged_axes(shape: Shape, first: int, last: int) -> Shape:
    """Join axes ``first .. last - 1`` of a shape to one."""
    return (*shape[:first], prod(shape[first:last]), *shape[last:])


def _dot(starts: Sequence[int], strides: Sequence[int]) -> int:
    return sum(start * stride for start, stride in zip(starts, strides, strict=True))
