"""Reductions: sums, means, norms, extremes and their positions, running sums, Hardmax."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype
from walle_stream.engine.lowering.registry import Call, Kind, Result, axes_of, axis_of, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import is_floating
from walle_stream.errors import DTypeError, ShapeError

_SINGLE: Final[Mapping[str, Operator]] = {
    "ReduceSum": Operator.SUM,
    "ReduceProd": Operator.PROD,
    "ReduceMax": Operator.REDUCE_MAX,
    "ReduceMin": Operator.REDUCE_MIN,
}


@lowers(*_SINGLE, kind=Kind.ATOMIC)
def _single(call: Call) -> Result:
    return call.builder.reduce(
        _SINGLE[call.node.operator], call.tensor(0), _axes(call), keep=_keeps(call)
    )


def _axes(call: Call) -> Shape:
    rank = call.tensor(0).rank
    named = call.numbers(1) if call.has(1) else call.list("axes")
    if not named:
        return () if call.number("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axes_of(named, rank)))


def _keeps(call: Call) -> bool:
    return bool(call.number("keepdims", 1))


def _wide(builder: Builder, x: Tensor) -> Tensor:
    # integers stay exact: narrow ones are added in 64 bits
    if is_floating(x.dtype):
        return builder.cast(x, wide_dtype(x.dtype))
    if x.dtype.kind not in "iu":
        raise DTypeError(f"numbers are expected, not {x.dtype.name}")
    return builder.cast(x, np.uint64 if x.dtype.kind == "u" else np.int64)


def _real(builder: Builder, x: Tensor) -> Tensor:
    # a floating dtype for roots and logarithms of integers
    return x if is_floating(x.dtype) else builder.cast(x, np.float64)


@lowers("ReduceL1")
def _l1(call: Call) -> Result:
    builder = call.builder
    return builder.sum(builder.abs(call.tensor(0)), _axes(call), keep=_keeps(call))


@lowers("ReduceMean")
def _mean(call: Call) -> Result:
    builder, x, axes = call.builder, call.tensor(0), _axes(call)
    total = builder.sum(_wide(builder, x), axes, keep=_keeps(call))
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    if count != 1:
        # the mean of no elements is nan if the dtype has one
        total = builder.div(total, count if is_floating(x.dtype) else max(count, 1))
    return builder.cast(total, x.dtype)


@lowers("ReduceSumSquare", "ReduceL2", "ReduceLogSum")
def _of_sum(call: Call) -> Result:
    builder, source, operator = call.builder, call.tensor(0), call.node.operator
    x = _wide(builder, source)
    parts = x if operator == "ReduceLogSum" else builder.mul(x, x)
    result = builder.sum(parts, _axes(call), keep=_keeps(call))
    last = {"ReduceL2": Operator.SQRT, "ReduceLogSum": Operator.LOG}.get(operator)
    if last is not None:
        result = builder.unary(last, _real(builder, result))
    return builder.cast(result, source.dtype)


@lowers("ReduceLogSumExp")
def _log_sum_exp(call: Call) -> Result:
    builder, source, axes = call.builder, call.tensor(0), _axes(call)
    x = _real(builder, _wide(builder, source))
    greatest = builder.max(x, axes)
    # an infinite maximum would give inf - inf
    finite = builder.less(builder.abs(greatest), np.inf)
    shift = builder.select(finite, greatest, 0.0)
    powers = builder.exp(builder.sub(x, shift))
    result = builder.add(builder.log(builder.sum(powers, axes)), shift)
    if not _keeps(call):
        result = builder.reshape(result, [n for axis, n in enumerate(x.shape) if axis not in axes])
    return builder.cast(result, source.dtype)


@lowers("ArgMax", "ArgMin", kind=Kind.ATOMIC)
def _arg(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    axis = call.axis(x.rank, 0)
    operator = Operator.ARG_MAX if call.node.operator == "ArgMax" else Operator.ARG_MIN
    last = bool(call.number("select_last_index", 0))
    indices = builder.emit(operator, x, axis=axis, last=last)
    if _keeps(call):
        return indices
    return builder.reshape(indices, (*x.shape[:axis], *x.shape[axis + 1 :]))


@lowers("Hardmax")
def _hardmax(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    if call.version < 13:  # noqa: PLR2004  # the opset that made it apply to one axis
        axis = call.axis(x.rank, 1)
        rows = moves.merged_axes(x.shape, axis, x.rank)
    else:
        axis, rows = call.axis(x.rank, -1), x.shape
    if not x.size:
        return x
    indices = builder.emit(Operator.ARG_MAX, builder.reshape(x, rows), axis=axis)
    numbers = np.arange(rows[axis]).reshape(-1, *(1,) * (len(rows) - axis - 1))
    chosen = builder.equal(indices, builder.constant(numbers))
    return builder.reshape(builder.cast(chosen, x.dtype), x.shape)


@lowers("CumSum", "CumProd")
def _cumulated(call: Call) -> Result:
    builder, source, is_sum = call.builder, call.tensor(0), call.node.operator == "CumSum"
    # adding -0.0 changes no number, not even -0.0
    combine, first, border = (builder.add, 0, -0.0) if is_sum else (builder.mul, 1, 1.0)
    numbers = call.numbers(1)
    if numbers is None or len(numbers) != 1:
        raise ShapeError(f"axis must be one whole number, not {list(numbers or ())}")
    axis = axis_of(numbers[0], source.rank)
    backwards = bool(call.number("reverse", 0))
    if is_floating(source.dtype):
        x = builder.cast(source, wide_dtype(source.dtype))
    else:
        x, border = source, first
    x = running(builder, x, axis, combine, border, backwards=backwards)
    if call.number("exclusive", 0) and x.shape[axis]:
        x = _shifted(builder, x, axis, -1 if backwards else 1, first)
    return builder.cast(x, source.dtype)


def running(
    builder: Builder, x: Tensor, axis: int, combine: Callable[[Tensor, Tensor], Tensor],
    border: float = 0, *, backwards: bool = False,
) -> Tensor:  # fmt: skip
    """Combine each element with all before it along an axis; ``border`` is the neutral element."""
    # each step doubles the number of combined elements
    reach = 1
    while reach < x.shape[axis]:
        x = combine(x, _shifted(builder, x, axis, -reach if backwards else reach, border))
        reach *= 2
    return x


def _shifted(builder: Builder, x: Tensor, axis: int, by: int, fill: float) -> Tensor:
    before = [by if number == axis else 0 for number in range(x.rank)]
    return moves.pad(builder, x, before, [-width for width in before], fill)
