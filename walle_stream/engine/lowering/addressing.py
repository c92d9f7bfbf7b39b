"""Computed addresses of the elements and rows that indices name.

Indices are tensors. A negative index counts from the end of its axis, and TAKE or PUT refuses an
index out of range at run time. If several coordinates make one address, each is first looked up in
the addresses of its own axis, so that no coordinate reaches into the next row.
"""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import INT64, is_integer
from walle_stream.errors import DTypeError, ShapeError


def wrapped(builder: Builder, indices: Tensor, size: int | Tensor) -> Tensor:
    """Return indices from the front, as int64; negative ones count from the end of ``size``.

    Raises:
        DTypeError: The indices are not integers.
    """
    if not is_integer(indices.dtype):
        raise DTypeError(f"indices are whole numbers, not {indices.dtype.name}")
    wide = builder.cast(indices, INT64)
    if indices.dtype.kind == "u":
        return wide
    return builder.select(builder.less(wide, 0), builder.add(wide, size), wide)


def take(builder: Builder, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Read slices along an axis at int64 indices of any shape: ``(*before, *indices, *behind)``.

    An index out of range is refused at run time.
    """
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    line = builder.reshape(x, (prod(before), x.shape[axis], prod(behind)))
    taken = builder.emit(Operator.TAKE, line, builder.reshape(indices, (indices.size,)))
    return builder.reshape(taken, (*before, *indices.shape, *behind))


def flat_take(builder: Builder, x: Tensor, addresses: Tensor) -> Tensor:
    """Read single elements of a tensor of any shape; the output has the shape of ``addresses``."""
    return take(builder, builder.reshape(x, (x.size,)), addresses)


def put(
    builder: Builder, x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none"
) -> Tensor:
    """Return a copy of a matrix ``(N, inner)`` with rows replaced or combined; see ``PUT``.

    ``indices`` are int64 of any shape, and ``updates`` has ``inner`` elements for each.
    """
    flat = builder.reshape(indices, (indices.size,))
    rows = builder.reshape(updates, (indices.size, x.shape[1]))
    return builder.emit(Operator.PUT, x, flat, rows, reduction=reduction)


def looked_up(builder: Builder, indices: Tensor, size: int, stride: int) -> Tensor:
    """Return the int64 addresses of indices along an axis; ``stride`` is in elements.

    An index out of range is refused at run time.
    """
    return flat_take(builder, builder.constant(np.arange(size) * stride), indices)


def reversed_lengths(
    builder: Builder, x: Tensor, lengths: Tensor, *, time: int, batch: int
) -> Tensor:
    """Reverse the first ``lengths`` elements of each row of axis ``batch`` along axis ``time``.

    Raises:
        ShapeError: The number of lengths differs from the number of batches.
    """
    if lengths.shape != (x.shape[batch],):
        raise ShapeError(f"lengths of shape {list(lengths.shape)} for {x.shape[batch]} batches")
    order = (time, batch, *(axis for axis in range(x.rank) if axis not in {time, batch}))
    steps, rows = x.shape[time], x.shape[batch]
    moved = moves.transpose(builder, x, order)
    count = builder.constant(np.arange(steps).reshape(-1, 1))
    ends = builder.reshape(builder.cast(lengths, INT64), (1, rows))
    mirrored = builder.sub(builder.sub(ends, 1), count)
    index = builder.select(builder.less(count, ends), mirrored, count)
    address = looked_up(builder, index, steps, rows)
    address = builder.add(address, builder.constant(np.arange(rows)))
    lines = builder.reshape(moved, (steps * rows, *moved.shape[2:]))
    back = tuple(order.index(axis) for axis in range(x.rank))
    return moves.transpose(builder, take(builder, lines, address), back)
