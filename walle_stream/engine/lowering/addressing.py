"""Addresses that are computed: of elements and rows that indices name.

Indices stay tensors. A negative one counts from the end of its axis; one that is
out of range is refused by TAKE or PUT when it is run. Where several coordinates
make one address, each is looked up in the addresses of its own axis first, so that
none of them reaches into the next row.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import INT64, TEXT, is_floating, is_integer
from walle_stream.errors import DTypeError, ShapeError


def wrapped(builder: Builder, indices: Tensor, size: int | Tensor) -> Tensor:
    """Count indices from the front, as int64; negative ones are from the end of ``size``.

    Raises:
        DTypeError: They are no whole numbers.
    """
    if not is_integer(indices.dtype):
        raise DTypeError(f"indices are whole numbers, not {indices.dtype.name}")
    wide = builder.cast(indices, INT64)
    if indices.dtype.kind == "u":
        return wide
    return builder.select(builder.less(wide, 0), builder.add(wide, size), wide)


def take(builder: Builder, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Read slices along an axis at int64 indices of any shape: ``(*before, *indices, *behind)``.

    An index that is out of range is refused when it is run.
    """
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    line = builder.reshape(x, (prod(before), x.shape[axis], prod(behind)))
    taken = builder.emit(Operator.TAKE, line, builder.reshape(indices, (indices.size,)))
    return builder.reshape(taken, (*before, *indices.shape, *behind))


def flat_take(builder: Builder, x: Tensor, addresses: Tensor) -> Tensor:
    """Read single elements of a tensor of any shape, of the shape of int64 ``addresses``."""
    return take(builder, builder.reshape(x, (x.size,)), addresses)


def put(
    builder: Builder, x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none"
) -> Tensor:
    """Give a copy of a matrix ``(N, inner)`` with rows replaced or combined; see ``PUT``.

    ``indices`` are int64 of any shape, and ``updates`` has ``inner`` elements for each.
    """
    flat = builder.reshape(indices, (indices.size,))
    rows = builder.reshape(updates, (indices.size, x.shape[1]))
    return builder.emit(Operator.PUT, x, flat, rows, reduction=reduction)


def looked_up(builder: Builder, indices: Tensor, size: int, stride: int) -> Tensor:
    """Give the int64 addresses of indices along an axis, whose stride is in elements.

    An index that is out of range is refused when it is run.
    """
    return flat_take(builder, builder.constant(np.arange(size) * stride), indices)


def reversed_lengths(
    builder: Builder, x: Tensor, lengths: Tensor, *, time: int, batch: int
) -> Tensor:
    """Reverse the beginning of each row of axis ``batch`` along axis ``time``; the rest stays.

    Raises:
        ShapeError: There is not one length a batch.
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


def taken(builder: Builder, table: Array, indices: Tensor) -> Tensor:
    """Give the rows of a table ``(count, *row)`` by int64 numbers: ``(*indices, *row)``.

    A number that is not below ``count`` fails when it is run.
    """
    return take(builder, builder.constant(table), indices)


def indices_of(builder: Builder, x: Tensor, keys: Sequence[Any] | Array) -> Tensor:
    """Find each number or string among keys, int64; their count stands for none.

    The last of equal keys counts, and a nan equals a nan.

    Raises:
        DTypeError: Strings are looked up among numbers, or the other way round.
    """
    listed = np.asarray(keys)
    if (x.dtype == TEXT) != (listed.dtype.kind in "OUS") and listed.size:
        raise DTypeError(f"{x.dtype.name} cannot be among keys of {listed.dtype.name}")
    missing = len(listed)
    if not missing:
        return builder.broadcast(builder.constant(0, INT64), x.shape)
    if x.dtype == TEXT:
        return _indices_of_strings(builder, x, [str(element) for element in listed])
    known = listed.astype(x.dtype)
    is_number = np.equal(known, known)
    result = _indices_of_numbers(builder, x, known, is_number)
    if is_floating(x.dtype) and not is_number.all():
        last = int(np.flatnonzero(~is_number)[-1])
        result = builder.select(builder.is_nan(x), last, result)
    return result


def _indices_of_strings(builder: Builder, x: Tensor, keys: list[str]) -> Tensor:
    # an index in the table of different ones, and from there the last index among the keys
    last = {key: number for number, key in enumerate(keys)}
    table = {key: number for number, key in enumerate(last)}
    result = builder.text("lookup", [x], x.shape, INT64, table=table)
    if len(table) == len(keys):
        return result
    return taken(builder, np.array([*last.values(), len(keys)], np.int64), result)


def _indices_of_numbers(builder: Builder, x: Tensor, keys: Array, is_number: Array) -> Tensor:
    numbers = np.flatnonzero(is_number)
    order = numbers[np.argsort(keys[numbers], kind="stable")]
    if not order.size:
        return builder.broadcast(builder.constant(len(keys), INT64), x.shape)
    ordered = keys[order]
    # of equal ones the last in order, which stays where they are sorted
    is_last = np.append(ordered[1:] != ordered[:-1], np.True_)
    positions, ordered = order[is_last], ordered[is_last]
    rounds = (len(ordered) - 1).bit_length()
    width = (1 << rounds) - len(ordered)
    padded = np.append(ordered, np.repeat(ordered[-1:], width))
    flat = builder.reshape(x, (x.size,))
    low = builder.broadcast(builder.constant(0, INT64), flat.shape)
    for number in reversed(range(rounds)):
        probe = builder.add(low, 1 << number)
        is_below = builder.less_equal(taken(builder, padded, probe), flat)
        low = builder.select(is_below, probe, low)
    is_found = builder.equal(taken(builder, padded, low), flat)
    index = taken(
        builder, np.append(positions, np.repeat(positions[-1:], width)).astype(np.int64), low
    )
    return builder.reshape(builder.select(is_found, index, len(keys)), x.shape)
