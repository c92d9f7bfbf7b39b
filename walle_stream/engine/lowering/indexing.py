"""Rules that read and write at indices: TAKE and PUT at computed addresses."""

from functools import reduce
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import (
    flat_take,
    looked_up,
    put,
    reversed_lengths,
    take,
    wrapped,
)
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape, strides_of
from walle_stream.engine.rules import INT64, TEXT, check_table, is_floating, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_REDUCTIONS: Final = {
    "none": "none", "add": "add", "mul": "mul", "min": "minimum", "max": "maximum",
}  # fmt: skip


@lowers("Gather")
def _gather(call: Call) -> Result:
    x, indices, builder = call.tensor(0), call.tensor(1), call.builder
    axis = call.axis(x.rank, 0)
    positions = wrapped(builder, indices, x.shape[axis])
    known = None if positions.data is None else positions.data.reshape(-1)
    if known is None or not known.size or not x.size:
        return take(builder, x, positions, axis)
    # known positions with a constant step are a view, which merges with other moves
    first, gaps = int(known[0]), np.diff(known)
    if known.min() < 0 or known.max() >= x.shape[axis] or (gaps != gaps[:1]).any():
        return take(builder, x, positions, axis)
    lead, tail = x.shape[:axis], x.shape[axis + 1 :]
    line = builder.reshape(x, (prod(lead), x.shape[axis], prod(tail)))
    own, gap = strides_of(line.shape), int(gaps[0]) if gaps.size else 1
    shape = (line.shape[0], known.size, line.shape[2])
    slices = builder.view(line, shape, (own[0], gap * own[1], 1), first * own[1])
    return builder.reshape(slices, (*lead, *indices.shape, *tail))


@lowers("GatherElements")
def _gather_elements(call: Call) -> Result:
    x, indices = call.tensor(0), call.tensor(1)
    return flat_take(call.builder, x, _element_addresses(call, x, indices))


@lowers("Scatter", "ScatterElements")
def _scatter_elements(call: Call) -> Result:
    x, indices, updates = call.tensor(0), call.tensor(1), call.tensor(2)
    if updates.shape != indices.shape:
        raise ShapeError(f"updates {list(updates.shape)} for indices {list(indices.shape)}")
    addresses = _element_addresses(call, x, indices)
    return _put(call, x, addresses, updates)


def _element_addresses(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    builder = call.builder
    axis = call.axis(x.rank, 0)
    fits = indices.rank == x.rank and all(
        mine <= its or number == axis
        for number, (mine, its) in enumerate(zip(indices.shape, x.shape, strict=True))
    )
    if not fits:
        raise ShapeError(f"indices {list(indices.shape)} of data {list(x.shape)}, axis {axis}")
    positions, own = wrapped(builder, indices, x.shape[axis]), strides_of(x.shape)
    if all(size <= 1 for number, size in enumerate(x.shape) if number != axis):
        return positions
    base = np.zeros((1,) * x.rank, np.int64)
    for number, size in enumerate(indices.shape):
        if number != axis:
            line = np.arange(size) * own[number]
            base = base + line.reshape([-1 if at == number else 1 for at in range(x.rank)])
    return builder.add(
        looked_up(builder, positions, x.shape[axis], own[axis]), builder.constant(base)
    )


@lowers("GatherND")
def _gather_nd(call: Call) -> Result:
    x, indices, builder = call.tensor(0), call.tensor(1), call.builder
    shared = call.number("batch_dims", 0)
    if not 0 <= shared < min(x.rank, indices.rank) or x.shape[:shared] != indices.shape[:shared]:
        raise ShapeError(
            f"data {list(x.shape)} and indices {list(indices.shape)} share no {shared} axes"
        )
    addresses, depth = _tuple_addresses(builder, x.shape, indices, shared)
    tail = x.shape[depth:]
    return take(builder, builder.reshape(x, (prod(x.shape[:depth]), *tail)), addresses)


@lowers("ScatterND")
def _scatter_nd(call: Call) -> Result:
    x, indices, updates, builder = call.tensor(0), call.tensor(1), call.tensor(2), call.builder
    addresses, depth = _tuple_addresses(builder, x.shape, indices, 0)
    if updates.shape != (*addresses.shape, *x.shape[depth:]):
        raise ShapeError(
            f"updates {list(updates.shape)} for indices {list(indices.shape)} of {list(x.shape)}"
        )
    return _put(call, x, addresses, updates, depth)


def _tuple_addresses(
    builder: Builder, shape: Shape, indices: Tensor, shared: int
) -> tuple[Tensor, int]:
    # addresses of rows, which have the axes of the data after the first ``depth``
    if not indices.rank or not 1 <= indices.shape[-1] <= len(shape) - shared:
        raise ShapeError(f"indices {list(indices.shape)} of data {list(shape)}")
    count = indices.shape[-1]
    depth = shared + count
    sizes = shape[shared:depth]
    positions = wrapped(builder, indices, builder.constant(np.array(sizes, np.int64)))
    if depth == 1:
        return builder.reshape(positions, indices.shape[:-1]), depth
    strides = strides_of(shape[:depth])

    def part(number: int) -> Tensor:
        column = moves.slice_axis(builder, positions, positions.rank - 1, number, number + 1)
        column = builder.reshape(column, indices.shape[:-1])
        return looked_up(builder, column, sizes[number], strides[shared + number])

    address = reduce(builder.add, map(part, range(count)))
    if shared:
        rows = np.arange(prod(shape[:shared])) * prod(sizes)
        behind = (1,) * (indices.rank - 1 - shared)
        address = builder.add(address, builder.constant(rows.reshape(*shape[:shared], *behind)))
    return address, depth


def _put(
    call: Call, x: Tensor, addresses: Tensor, updates: Tensor, depth: int | None = None
) -> Tensor:
    # writes rows, which have the axes after the first ``depth``, or single elements
    reduction = _REDUCTIONS[call.choice("reduction", _REDUCTIONS, "none")]
    if updates.dtype != x.dtype:
        raise DTypeError(f"updates of {updates.dtype.name} for data of {x.dtype.name}")
    axes = x.rank if depth is None else depth
    matrix = call.builder.reshape(x, (prod(x.shape[:axes]), prod(x.shape[axes:])))
    result = put(call.builder, matrix, addresses, updates, reduction)
    return call.builder.reshape(result, x.shape)


@lowers("TensorScatter")
def _tensor_scatter(call: Call) -> Result:
    past, update, builder = call.tensor(0), call.tensor(1), call.builder
    axis = call.axis(past.rank, -2)
    mode = call.choice("mode", ("linear", "circular"), "linear")
    if not axis:
        raise LoweringError("a cache cannot be written along axis 0, which is the batch axis")
    if update.rank != past.rank or update.dtype != past.dtype:
        raise ShapeError(f"update {update} of a cache {past}")
    room, steps, batch = past.shape[axis], update.shape[axis], past.shape[0]
    if steps > room or (*update.shape[:axis], room, *update.shape[axis + 1 :]) != past.shape:
        raise ShapeError(f"update {list(update.shape)} of a cache {list(past.shape)}")
    at = call.optional(2)
    if at is None:
        kept = moves.slice_axis(builder, past, axis, steps, room)
        return moves.concat(builder, [update, kept], axis)
    if at.shape != (batch,) or not is_integer(at.dtype):
        raise ShapeError(f"write indices {at} for {batch} batches")
    start = builder.reshape(builder.cast(at, INT64), (batch, 1, 1))
    positions = builder.add(start, builder.constant(np.arange(steps)))
    if mode == "circular" and room:
        positions = builder.mod(positions, room)
    rows, inner = prod(past.shape[1:axis]), prod(past.shape[axis + 1 :])
    base = np.arange(batch * rows).reshape(batch, rows, 1) * room
    addresses = builder.add(looked_up(builder, positions, room, 1), builder.constant(base))
    matrix = builder.reshape(past, (batch * rows * room, inner))
    return builder.reshape(put(builder, matrix, addresses, update), past.shape)


@lowers("OneHot")
def _one_hot(call: Call) -> Result:
    indices, builder = call.tensor(0), call.builder
    depth = call.values(1)
    values = call.tensor(2)
    if depth.size != 1 or not 0 <= float(depth.reshape(-1)[0]) < 2**31 or values.shape != (2,):
        raise ShapeError(f"depth {depth.tolist()} and values {list(values.shape)}")
    (count,) = check_table((int(depth.reshape(-1)[0]),), "the depth")
    axis = call.axis(indices.rank + 1, -1)
    if is_floating(indices.dtype):
        indices = builder.cast(indices, INT64)
    positions = moves.expand_axis(builder, wrapped(builder, indices, count), axis)
    line = np.arange(count).reshape([-1 if at == axis else 1 for at in range(positions.rank)])
    off, on = moves.unjoined(builder, values, 0)
    return builder.select(builder.equal(positions, builder.constant(line)), on, off)


@lowers("ReverseSequence")
def _reverse_sequence(call: Call) -> Result:
    x, lengths = call.tensor(0), call.tensor(1)
    time, batch = call.axis(x.rank, 0, "time_axis"), call.axis(x.rank, 1, "batch_axis")
    if time == batch:
        raise ShapeError(f"time and batch are the same axis: {time}")
    return reversed_lengths(call.builder, x, lengths, time=time, batch=batch)


@lowers("Trilu", domain="com.microsoft")
@lowers("Trilu")
def _trilu(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    if x.rank < 2:  # noqa: PLR2004  # a matrix
        raise ShapeError(f"shape {list(x.shape)} has no matrix")
    rows, columns = x.shape[-2:]
    diagonal = call.scalar(1, INT64) if call.has(1) else builder.constant(0, INT64)
    if call.has(1) and not is_integer(call.tensor(1).dtype):
        raise DTypeError(f"k is of {call.tensor(1).dtype.name}, not a whole number")
    distance = builder.constant(np.arange(columns) - np.arange(rows).reshape(-1, 1))
    is_upper = bool(call.number("upper", 1))
    kept = builder.less_equal(*((diagonal, distance) if is_upper else (distance, diagonal)))
    nothing = "" if x.dtype == TEXT else 0
    return builder.select(kept, x, nothing)
