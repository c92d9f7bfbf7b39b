"""Rules that select elements: the largest, the distinct, the non-zero ones.

Their number often depends on values. Such an operator is lowered in stages: the first ends with
NONZERO, and the reader of its positions is a separate node.
"""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import flat_take, put, take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import widened
from walle_stream.engine.lowering.reductions import running
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Call, Result, Stages, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import strides_of
from walle_stream.engine.rules import BOOL, INT64, TEXT, is_floating
from walle_stream.errors import LoweringError, ShapeError

_TOP_K_BY_INPUT = 10
"""The opset that made k an input."""


@lowers("TopK")
def _top_k(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    axis = call.axis(x.rank, -1)
    counts = (call.number("k"),) if call.version < _TOP_K_BY_INPUT else call.numbers(1)
    if counts is None or len(counts) != 1 or not 0 <= counts[0] <= x.shape[axis]:
        shown = "nothing" if counts is None else list(counts)
        raise ShapeError(f"k is {shown}, for {x.shape[axis]} elements")
    (k,) = counts
    order = (*(number for number in range(x.rank) if number != axis), axis)
    moved = moves.transpose(builder, x, order)
    rank = builder.emit(
        Operator.ARGSORT, _sort_key(builder, moved), descending=bool(call.number("largest", 1))
    )
    best = moves.slice_axis(builder, rank, x.rank - 1, 0, k)
    rows = prod(moved.shape[:-1])
    starts = np.arange(rows).reshape(*moved.shape[:-1], 1) * moved.shape[-1]
    values = flat_take(builder, moved, builder.add(best, builder.constant(starts)))
    back = tuple(order.index(number) for number in range(x.rank))
    return moves.transpose(builder, values, back), moves.transpose(builder, best, back)


def _sort_key(builder: Builder, x: Tensor) -> Tensor:
    # some backends cannot order nan in narrow floats
    return widened(builder, x) if is_floating(x.dtype) else x


@lowers("NonZero")
def _non_zero(call: Call) -> Result:
    node, positions = call.node, call.inner_name("positions")
    call.tensor(0)
    return Stages(
        call.stage("Positions", node.inputs[:1], (positions,)),
        call.stage("Coordinates", (node.inputs[0], positions), node.outputs[:1]),
    )


@lowers("Compress")
def _compress(call: Call) -> Result:
    x, condition = call.tensor(0), call.tensor(1)
    size = x.size if call.attribute("axis") is None else x.shape[call.axis(x.rank)]
    if condition.rank != 1 or condition.shape[0] > size or condition.dtype != BOOL:
        raise ShapeError(f"condition {condition} for {size} slices")
    node, positions = call.node, call.inner_name("positions")
    return Stages(
        call.stage("Positions", (node.inputs[1],), (positions,)),
        call.stage("Compressed", (node.inputs[0], positions), node.outputs[:1], node.attributes),
    )


@lowers("Compressed", domain=INNER_DOMAIN)
def _compressed(call: Call) -> Result:
    return _chosen(call, call.tensor(0), call.tensor(1))


@lowers("Positions", domain=INNER_DOMAIN)
def _positions(call: Call) -> Result:
    x = call.tensor(0)
    text = x.dtype == TEXT
    builder = call.builder
    nonzero = builder.logical_not(builder.equal(x, "")) if text else builder.cast(x, BOOL)
    return builder.emit(Operator.NONZERO, nonzero)


@lowers("Coordinates", domain=INNER_DOMAIN)
def _coordinates(call: Call) -> Result:
    shape, positions, builder = call.tensor(0).shape or (1,), call.tensor(1), call.builder
    strides = builder.constant(np.array(strides_of(shape), np.int64).reshape(-1, 1))
    sizes = builder.constant(np.array(shape, np.int64).reshape(-1, 1))
    line = builder.reshape(positions, (1, positions.size))
    # a shape with a size of 0 has no positions, so nothing is divided by 0
    return builder.mod(builder.div(line, strides), sizes)


@lowers("Unique")
def _unique(call: Call) -> Result:
    node, x = call.node, call.tensor(0)
    if call.attribute("axis") is not None:
        call.axis(x.rank)
    if call.number("sorted", 1) not in {0, 1}:
        raise LoweringError("attribute 'sorted' must be 0 or 1")
    order, starts, group = (call.inner_name(name) for name in ("order", "starts", "group"))
    inner = (order, group, starts)
    return Stages(
        call.stage("UniqueGroups", node.inputs[:1], inner, node.attributes),
        call.stage("UniqueOutputs", (node.inputs[0], *inner), node.outputs, node.attributes),
    )


@lowers("UniqueGroups", domain=INNER_DOMAIN)
def _unique_groups(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    rows = _rows(call, x)
    if rows.shape[1]:
        columns = moves.transpose(builder, rows, (1, 0))
    else:
        columns = builder.constant(np.zeros((1, rows.shape[0]), np.int64))
    while columns.shape[0] > 1:
        columns = _paired(builder, _ranks(builder, columns))
    order, is_first = _ordered(builder, columns)
    count = rows.shape[0]
    group = builder.sub(running(builder, builder.cast(is_first, INT64), 1, builder.add), 1)
    starts = builder.emit(Operator.NONZERO, builder.reshape(is_first, (count,)))
    return builder.reshape(order, (count,)), builder.reshape(group, (count,)), starts


def _rows(call: Call, x: Tensor) -> Tensor:
    # the rows to compare: single elements, or slices along the axis
    builder = call.builder
    if call.attribute("axis") is None:
        return builder.reshape(x, (x.size, 1))
    axis = call.axis(x.rank)
    order = (axis, *(number for number in range(x.rank) if number != axis))
    moved = moves.transpose(builder, x, order)
    return builder.reshape(moved, (moved.shape[0], prod(moved.shape[1:])))


def _ordered(builder: Builder, lines: Tensor) -> tuple[Tensor, Tensor]:
    # the sorted order of each line, and whether each sorted element is the first of equal ones
    key = _sort_key(builder, lines)
    order = builder.emit(Operator.ARGSORT, key)
    count, size = lines.shape
    starts = builder.constant(np.arange(count).reshape(-1, 1) * size)
    ordered = flat_take(builder, key, builder.add(order, starts))
    if not size:
        return order, builder.constant(np.zeros(lines.shape, BOOL))
    before = moves.slice_axis(builder, ordered, 1, 0, size - 1)
    behind = moves.slice_axis(builder, ordered, 1, 1, size)
    equal = builder.equal(before, behind)
    if is_floating(key.dtype):
        both = builder.logical_and(
            builder.is_nan(before),
            builder.is_nan(behind),
        )
        equal = builder.logical_or(equal, both)
    first = builder.constant(np.ones((count, 1), BOOL))
    return order, moves.concat(builder, [first, builder.logical_not(equal)], 1)


def _ranks(builder: Builder, lines: Tensor) -> Tensor:
    # equal elements of a line have one rank, and larger ones have a higher rank
    order, is_first = _ordered(builder, lines)
    count, size = lines.shape
    position = builder.constant(np.arange(size))
    rank = running(builder, builder.select(is_first, position, 0), 1, builder.maximum)
    address = builder.add(order, builder.constant(np.arange(count).reshape(-1, 1) * size))
    return builder.reshape(_put(builder, address, rank), lines.shape)


def _put(builder: Builder, indices: Tensor, values: Tensor) -> Tensor:
    # (count,) int64: each value at its index; indices are distinct
    zeros = builder.constant(np.zeros((indices.size, 1), np.int64))
    return builder.reshape(put(builder, zeros, indices, values), (indices.size,))


def _paired(builder: Builder, ranks: Tensor) -> Tensor:
    # joins pairs of neighbouring columns of ranks, of which the first is more significant
    count, size = ranks.shape
    if count % 2:
        ranks = moves.pad(builder, ranks, (0, 0), (1, 0))
        count += 1
    upper = moves.slice_axis(builder, ranks, 0, 0, count, 2)
    lower = moves.slice_axis(builder, ranks, 0, 1, count, 2)
    return builder.add(builder.mul(upper, size), lower)


@lowers("UniqueOutputs", domain=INNER_DOMAIN)
def _unique_outputs(call: Call) -> Result:
    x, order, group, starts = (call.tensor(number) for number in range(4))
    builder, count, result = call.builder, order.size, starts.size
    firsts = flat_take(builder, order, starts)
    ends = moves.slice_axis(builder, starts, 0, 1, result) if result else starts
    if result:
        ends = moves.concat(builder, [ends, builder.constant(np.array([count]))], 0)
    counts = builder.sub(ends, starts)
    if not call.number("sorted", 1):
        by_place = builder.emit(Operator.ARGSORT, firsts)
        firsts, counts = (flat_take(builder, tensor, by_place) for tensor in (firsts, counts))
        numbers = builder.constant(np.arange(by_place.size))
        group = flat_take(builder, _put(builder, by_place, numbers), group)
    return _chosen(call, x, firsts), firsts, _put(builder, order, group), counts


def _chosen(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    # slices along the axis, or single elements
    if call.attribute("axis") is None:
        return flat_take(call.builder, x, indices)
    return take(call.builder, x, indices, call.axis(x.rank))
