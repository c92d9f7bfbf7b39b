"""Channels-last tensors, ``(N, *spatial, C)``, and the parts of them that windows read."""

from math import prod
from typing import Any

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.windows import Window
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, Shape, View, simplified, strides_of, whole
from walle_stream.engine.rules import check_size


def channels_last(builder: Builder, x: Tensor) -> Tensor:
    """Move ``(N, C, *spatial)`` to ``(N, *spatial, C)``."""
    return moves.transpose(builder, x, (0, *range(2, x.rank), 1))


def channels_first(builder: Builder, x: Tensor) -> Tensor:
    """Move ``(N, *spatial, C)`` to ``(N, C, *spatial)``; see ``channels_last``."""
    return moves.transpose(builder, x, (0, x.rank - 1, *range(1, x.rank - 1)))


def padded(builder: Builder, x: Tensor, window: Window, fill: Any) -> Tensor:
    """Pad a channels-last tensor with the border that the windows read.

    Elements that no window reads are kept.
    """
    behind = [
        max(0, length - front - size)
        for length, front, size in zip(window.lengths, window.before, window.sizes, strict=True)
    ]
    check_size((x.shape[0], *window.lengths, x.shape[-1]), "a padded tensor")
    return moves.pad(builder, x, (0, *window.before, 0), (0, *behind, 0), fill)


def tap_view(builder: Builder, x: Tensor, window: Window, tap: Shape) -> Tensor:
    """Return the elements of a padded tensor that a kernel tap reads: ``(N, *output, C)``."""
    starts = [index * d for index, d in zip(tap, window.dilations, strict=True)]
    return moves.crop(
        builder, x, (0, *starts, 0), (x.shape[0], *window.output, x.shape[-1]),
        (1, *window.strides, 1),
    )  # fmt: skip


def patches(
    builder: Builder, x: Tensor, window: Window, starts: Shape, sizes: Shape, group: int = 1
) -> Tensor:
    """Gather the elements of windows side by side, as one overlapping view of a padded tensor.

    ``starts`` and ``sizes`` are a box of positions in ``(N, *output)``. Returns
    ``(group, positions, taps * C / group)``, without the first axis if ``group`` is 1.
    """
    depth = x.shape[-1] // group
    shape: Shape = (prod(sizes), window.taps * depth)
    if group > 1:
        shape = (group, *shape)
    own = strides_of(x.shape)
    steps = (own[0], *(s * step for s, step in zip(window.strides, own[1:-1], strict=True)))
    inner = [d * step for d, step in zip(window.dilations, own[1:-1], strict=True)]
    size = (group, *sizes, *window.kernel, depth)
    offset = sum(first * step for first, step in zip(starts, steps, strict=True))
    source = View(offset, (depth, *steps, *inner, 1))
    region = whole(size, source)
    if simplified(region) == Region((x.size,), View(0, (1,)), View(0, (1,))):
        return builder.reshape(x, shape)
    return builder.raster([x], shape, [region])
