"""Reads tensors between their elements, at computed points.

An interpolation along one axis reads a few elements with weights. With several axes, their indices
combine to addresses of rows, which are taken, weighted and added.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import starmap

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import looked_up, take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_last
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import check_size


@dataclass(frozen=True, slots=True)
class Taps:
    """The elements of one axis to read, with their weights."""

    indices: Sequence[Tensor]
    """int64, from 0, all of one shape; the shapes of several axes are broadcast."""
    weights: Sequence[Tensor | None]
    """Weights of the indices, of the same shape; None is 1."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor with a row of all channels for each position."""

    data: Tensor
    """``(batch * positions, C)``."""
    sizes: Shape
    """Sizes of the spatial axes, with the border."""


def rows_of(builder: Builder, x: Tensor, border: int = 0) -> Rows:
    """Lay out ``(N, C, *spatial)`` in rows, with a border of zeros."""
    last = channels_last(builder, x)
    if border:
        around = (0, *(border,) * (x.rank - 2), 0)
        last = moves.pad(builder, last, around, around, None)
    sizes = last.shape[1:-1]
    count = int(np.prod(last.shape[:-1], dtype=np.int64))
    return Rows(builder.reshape(last, (count, last.shape[-1])), sizes)


def linear_taps(builder: Builder, at: Tensor, size: int, border: int) -> Taps:
    """Return the two neighbours of floating-point coordinates.

    ``size`` excludes the border, which is at least 2 wide. Points further outside read the border.
    """
    low = builder.floor(at)
    high_weight = builder.sub(at, low)
    first = bordered_index(builder, low, size, border, taps=2)
    return Taps((first, builder.add(first, 1)), (builder.sub(1, high_weight), high_weight))


def bordered_index(builder: Builder, low: Tensor, size: int, border: int, *, taps: int) -> Tensor:
    """Return the int64 index of the first of ``taps`` neighbours, all inside the bordered rows.

    ``low`` has integers in a floating-point dtype. ``size`` excludes the border, which is at least
    ``taps`` wide.
    """
    index = builder.add(builder.cast(low, np.int64), border)
    return builder.clip(index, border - taps, border + size)


def read_points(
    builder: Builder,
    rows: Rows,
    axes: Sequence[Taps],
    base: Tensor | None = None,
    *,
    combine: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Interpolate rows at taps of each spatial axis: ``(*points, C)``.

    ``base`` is the int64 first row of each point's batch; None is 0. ``combine`` joins the weighted
    neighbours; by default they are added.
    """
    corners: list[tuple[Tensor | None, Tensor | None]] = [(base, None)]
    stride = int(np.prod(rows.sizes, dtype=np.int64))
    for taps, size in zip(axes, rows.sizes, strict=True):
        stride //= max(size, 1)
        scaled = [builder.mul(index, stride) if stride != 1 else index for index in taps.indices]
        corners = [
            (_joined(builder.add, address, row), _joined(builder.mul, weight, factor))
            for address, weight in corners
            for row, factor in zip(scaled, taps.weights, strict=True)
        ]

    def corner(address: Tensor | None, weight: Tensor | None) -> Tensor:
        assert address is not None  # noqa: S101  # there is a spatial axis
        check_size((*address.shape, rows.data.shape[1]), "the points")
        elements = take(builder, rows.data, address)
        if weight is None:
            return elements
        factor = builder.cast(weight, elements.dtype)
        return builder.mul(elements, builder.reshape(factor, (*factor.shape, 1)))

    return reduce(combine or builder.add, starmap(corner, corners))


def _joined(
    join: Callable[[Tensor, Tensor], Tensor], x: Tensor | None, y: Tensor | None
) -> Tensor | None:
    if x is None or y is None:
        return y if x is None else x
    return join(x, y)


def first_rows(builder: Builder, batch: Tensor, count: int, size: int) -> Tensor:
    """Return the first row, int64 ``(boxes, 1, 1)``, of the image of each box, ``(boxes,)``.

    A number outside the ``count`` images fails the run.
    """
    first = looked_up(builder, builder.cast(batch, np.int64), count, size)
    return builder.reshape(first, (batch.shape[0], 1, 1))
