"""Reads tensors between their elements, at points that are computed.

An interpolation of one axis reads a few elements with weights. Over more axes their
indices combine to addresses of rows, which are taken, weighted and added up.
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
    """What of one axis is read."""

    indices: Sequence[Tensor]
    """int64, from 0, all of one shape; those of several axes spread to each other."""
    weights: Sequence[Tensor | None]
    """Of each, of its shape; None is 1."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor whose elements at one position of all channels are a row."""

    data: Tensor
    """``(batch * positions, C)``."""
    sizes: Shape
    """Of the spatial axes, border included."""


def rows_of(builder: Builder, x: Tensor, border: int = 0) -> Rows:
    """Lay ``(N, C, *spatial)`` in rows, with a border of zeros around."""
    last = channels_last(builder, x)
    if border:
        around = (0, *(border,) * (x.rank - 2), 0)
        last = moves.pad(builder, last, around, around, None)
    sizes = last.shape[1:-1]
    count = int(np.prod(last.shape[:-1], dtype=np.int64))
    return Rows(builder.reshape(last, (count, last.shape[-1])), sizes)


def linear_taps(builder: Builder, at: Tensor, size: int, border: int) -> Taps:
    """Give the two neighbours of floating coordinates, for rows with a border of at least 2.

    ``size`` is the axis without its border, which stands for what is further outside.
    """
    low = builder.floor(at)
    high_weight = builder.sub(at, low)
    first = bordered_index(builder, low, size, border, taps=2)
    return Taps((first, builder.add(first, 1)), (builder.sub(1, high_weight), high_weight))


def bordered_index(builder: Builder, low: Tensor, size: int, border: int, *, taps: int) -> Tensor:
    """Give the first of ``taps`` neighbours, int64, all of which are in the rows with their border.

    ``low`` has whole numbers in a floating dtype; ``size`` is without the border, which is at least
    ``taps``.
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

    ``base`` is the first row of each point's batch, int64; None is 0. The weighted neighbours are
    added up, unless ``combine`` joins them.
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
    """Give where the rows of images begin, int64 ``(boxes, 1, 1)``, by their numbers ``(boxes,)``.

    A number of none of the ``count`` images fails the run.
    """
    first = looked_up(builder, builder.cast(batch, np.int64), count, size)
    return builder.reshape(first, (batch.shape[0], 1, 1))
