"""Products of matrices: MatMul, Gemm, Det."""

from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import is_floating
from walle_stream.errors import LoweringError, ShapeError

DET_MAX: Final = 1024
"""Rows of the greatest matrix whose determinant is unrolled."""


def multiply(builder: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices as numpy does: vectors ``(K,)`` are taken, leading axes are spread.

    Gives ``(..., M, N)`` without the axes that a vector lacks.

    Raises:
        ShapeError: One is a scalar, or the sizes do not fit.
    """
    if not x.rank or not y.rank:
        raise ShapeError(f"a product of shapes {list(x.shape)} and {list(y.shape)}: of a scalar")
    left = builder.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    right = builder.reshape(y, (*y.shape, 1)) if y.rank == 1 else y
    result = _multiply(builder, left, right)
    if x.rank > 1 and y.rank > 1:
        return result
    rows = result.shape[-2:-1] if x.rank > 1 else ()
    columns = result.shape[-1:] if y.rank > 1 else ()
    return builder.reshape(result, (*result.shape[:-2], *rows, *columns))


def _multiply(builder: Builder, x: Tensor, y: Tensor) -> Tensor:
    if x.rank == 2 or any(size != 1 for size in y.shape[:-2]) or x.rank < y.rank:  # noqa: PLR2004
        return builder.matmul(x, y)
    # one matrix on the right for all batches: their rows are those of one tall matrix
    rows, inner = prod(x.shape[:-1]), x.shape[-1]
    tall = builder.reshape(x, (rows, inner))
    result = builder.matmul(tall, builder.reshape(y, y.shape[-2:]))
    return builder.reshape(result, (*x.shape[:-1], y.shape[-1]))


@lowers("MatMul", kind=Kind.ATOMIC)
def _matmul(call: Call) -> Result:
    return multiply(call.builder, call.tensor(0), call.tensor(1))


@lowers("Gemm")
def _gemm(call: Call) -> Result:
    builder = call.builder
    x, y = _matrix(call, 0, "transA"), _matrix(call, 1, "transB")
    result = _scaled(builder, builder.matmul(x, y), call.real("alpha", 1.0))
    if not call.has(2):
        return result
    added = _scaled(builder, call.tensor(2), call.real("beta", 1.0))
    return builder.add(result, builder.broadcast(added, result.shape))


def _matrix(call: Call, number: int, flag: str) -> Tensor:
    x = call.tensor(number)
    if x.rank != 2:  # noqa: PLR2004  # rows and columns
        raise ShapeError(f"input {number} of shape {list(x.shape)} is no matrix")
    return moves.transpose(call.builder, x, (1, 0)) if call.number(flag, 0) else x


def _scaled(builder: Builder, x: Tensor, factor: float) -> Tensor:
    if factor == 1:
        return x
    if is_floating(x.dtype) or factor.is_integer():
        return builder.mul(x, factor)
    return builder.cast(builder.mul(builder.cast(x, np.float64), factor), x.dtype)


@lowers("Det")
def _det(call: Call) -> Result:
    builder, given = call.builder, call.tensor(0)
    if given.rank < 2 or given.shape[-1] != given.shape[-2]:  # noqa: PLR2004  # rows and columns
        raise ShapeError(f"shape {list(given.shape)} is not of square matrices")
    size, lead = given.shape[-1], given.shape[:-2]
    if size > DET_MAX:
        raise LoweringError(f"the determinant of {size} rows; up to {DET_MAX} are unrolled")
    x = builder.reshape(widened(builder, given), (prod(lead), size, size))
    result = builder.broadcast(builder.constant(np.ones((), x.dtype)), (prod(lead), 1, 1))
    for left in range(size, 0, -1):
        pivot, x = _eliminated(builder, x, left)
        result = builder.mul(result, pivot)
    return builder.cast(builder.reshape(result, lead), given.dtype)


def _eliminated(builder: Builder, x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    # one step of Gauss: the row of the greatest first element leaves, and so does that column
    column = moves.slice_axis(builder, x, 2, 0, 1)
    if size == 1:
        return column, x
    place = builder.emit(Operator.ARG_MAX, builder.abs(column), axis=1)
    numbers = builder.constant(np.arange(size).reshape(-1, 1))
    chosen = builder.equal(place, numbers)
    row = builder.sum(builder.select(chosen, x, 0.0), (1,))
    # the first row takes the place of the one that leaves, which turns the sign
    first = moves.slice_axis(builder, x, 1, 0, 1)
    rest = moves.slice_axis(builder, builder.select(chosen, first, x), 1, 1, size)
    pivot = moves.slice_axis(builder, row, 2, 0, 1)
    divisor = builder.select(builder.equal(pivot, 0.0), 1.0, pivot)
    factor = builder.div(moves.slice_axis(builder, rest, 2, 0, 1), divisor)
    tail = builder.mul(factor, moves.slice_axis(builder, row, 2, 1, size))
    left = builder.sub(moves.slice_axis(builder, rest, 2, 1, size), tail)
    stays = builder.equal(place, 0)
    return builder.select(stays, pivot, builder.neg(pivot)), left
