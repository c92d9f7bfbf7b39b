"""Matrix products: MatMul, Gemm, Det, and Einsum, which is contracted pair by pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from string import ascii_letters
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import strides_of
from walle_stream.engine.rules import is_floating
from walle_stream.errors import LoweringError, ShapeError

DET_MAX: Final = 1024
"""Rows of the largest matrix whose determinant is unrolled."""


def multiply(builder: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply matrices as numpy does: vectors ``(K,)`` are accepted, leading axes are broadcast.

    Returns ``(..., M, N)`` without the axes that a vector lacks.

    Raises:
        ShapeError: An operand is a scalar, or the sizes do not fit.
    """
    if not x.rank or not y.rank:
        raise ShapeError(f"a product of shapes {list(x.shape)} and {list(y.shape)} has a scalar")
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
    # all batches share the right matrix, so their rows form one tall matrix
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
    x, y = matrix_of(call, 0, "transA"), matrix_of(call, 1, "transB")
    result = _scaled(builder, builder.matmul(x, y), call.real("alpha", 1.0))
    if not call.has(2):
        return result
    added = _scaled(builder, call.tensor(2), call.real("beta", 1.0))
    return builder.add(result, builder.broadcast(added, result.shape))


def matrix_of(call: Call, number: int, flag: str) -> Tensor:
    """Return an input that must be a matrix, transposed if the attribute ``flag`` is set.

    Raises:
        ShapeError: The input has another number of axes.
    """
    x = call.tensor(number)
    if x.rank != 2:  # noqa: PLR2004  # rows and columns
        raise ShapeError(f"input {number} of shape {list(x.shape)} is not a matrix")
    return moves.transpose(call.builder, x, (1, 0)) if call.number(flag, 0) else x


def _scaled(builder: Builder, x: Tensor, factor: float) -> Tensor:
    if factor == 1:
        return x
    if is_floating(x.dtype) or factor.is_integer():
        return builder.mul(x, factor)
    return builder.cast(builder.mul(builder.cast(x, np.float64), factor), x.dtype)


@lowers("Det")
def _det(call: Call) -> Result:
    builder, matrices = call.builder, call.tensor(0)
    if matrices.rank < 2 or matrices.shape[-1] != matrices.shape[-2]:  # noqa: PLR2004  # rows and columns
        raise ShapeError(f"shape {list(matrices.shape)} does not have square matrices")
    size, lead = matrices.shape[-1], matrices.shape[:-2]
    if size > DET_MAX:
        raise LoweringError(f"a determinant of {size} rows; at most {DET_MAX} are supported")
    x = builder.reshape(widened(builder, matrices), (prod(lead), size, size))
    result = builder.broadcast(builder.constant(np.ones((), x.dtype)), (prod(lead), 1, 1))
    for left in range(size, 0, -1):
        pivot, x = _eliminated(builder, x, left)
        result = builder.mul(result, pivot)
    return builder.cast(builder.reshape(result, lead), matrices.dtype)


def _eliminated(builder: Builder, x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    # one step of Gaussian elimination, which removes the first column and the pivot row
    column = moves.slice_axis(builder, x, 2, 0, 1)
    if size == 1:
        return column, x
    pivot_row = builder.emit(Operator.ARG_MAX, builder.abs(column), axis=1)
    numbers = builder.constant(np.arange(size).reshape(-1, 1))
    chosen = builder.equal(pivot_row, numbers)
    row = builder.sum(builder.select(chosen, x, 0.0), (1,))
    # the first row replaces the pivot row, which flips the sign
    first = moves.slice_axis(builder, x, 1, 0, 1)
    rest = moves.slice_axis(builder, builder.select(chosen, first, x), 1, 1, size)
    pivot = moves.slice_axis(builder, row, 2, 0, 1)
    divisor = builder.select(builder.equal(pivot, 0.0), 1.0, pivot)
    factor = builder.div(moves.slice_axis(builder, rest, 2, 0, 1), divisor)
    tail = builder.mul(factor, moves.slice_axis(builder, row, 2, 1, size))
    left = builder.sub(moves.slice_axis(builder, rest, 2, 1, size), tail)
    stays = builder.equal(pivot_row, 0)
    return builder.select(stays, pivot, builder.neg(pivot)), left


_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class _Term:
    tensor: Tensor
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        return self.tensor.shape[self.labels.index(label)]


@lowers("Einsum")
def _einsum(call: Call) -> Result:
    builder, tensors = call.builder, call.tensors()
    dtype = tensors[0].dtype
    if is_floating(dtype):
        tensors = [builder.cast(operand, wide_dtype(dtype, operand.dtype)) for operand in tensors]
    inputs, wanted = _parsed(call.text("equation"), [operand.rank for operand in tensors])
    named = list(zip(tensors, inputs, strict=True))
    sizes: dict[str, int] = {}
    for tensor, labels in named:
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
    terms = [_diagonal(builder, tensor, labels, sizes) for tensor, labels in named]
    while len(terms) > 1:
        first, second = min(combinations(terms, 2), key=lambda pair: _cost(*pair))
        terms = [term for term in terms if term is not first and term is not second]
        kept = {*wanted, *(label for term in terms for label in term.labels)}
        terms.append(_product(builder, first, second, kept))
    last = _summed(builder, terms[0], {*wanted})
    order = [last.labels.index(letter) for letter in wanted]
    return builder.cast(moves.transpose(builder, last.tensor, order), dtype)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise LoweringError(f"equation {equation!r} has {len(terms)} inputs, not {len(ranks)}")
    widths = [
        rank - len(term.replace(_ELLIPSIS, "")) if _ELLIPSIS in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    width = max(widths)
    inputs = []
    for term, rank, own in zip(terms, ranks, widths, strict=True):
        labels = _labels(equation, term, max(own, 0))
        if len(labels) != rank:
            raise ShapeError(f"equation {equation!r}: {term!r} does not have {rank} axes")
        inputs.append(labels)
    counts = Counter(label for labels in inputs for label in labels)
    if arrow:
        wanted = _labels(equation, right, width)
        if len({*wanted}) != len(wanted) or not counts.keys() >= {*wanted}:
            raise LoweringError(f"equation {equation!r}: its output repeats or invents an axis")
    else:
        once = sorted(
            letter for letter in counts if counts[letter] == 1 and letter in ascii_letters
        )
        wanted = (*_labels(equation, _ELLIPSIS if width else "", width), *once)
    return inputs, wanted


def _labels(equation: str, term: str, width: int) -> tuple[str, ...]:
    # the axes of an ellipsis are numbered from the end
    before, dots, behind = term.partition(_ELLIPSIS)
    if any(character not in ascii_letters for character in before + behind):
        raise LoweringError(f"equation {equation!r}: {term!r} has characters that are not letters")
    middle = [f"...{number}" for number in range(width, 0, -1)] if dots else []
    return (*before, *middle, *behind)


def _diagonal(
    builder: Builder, x: Tensor, labels: tuple[str, ...], sizes: Mapping[str, int]
) -> _Term:
    # an axis of size 1 is dropped if it is broadcast: it scales all elements of the others
    strides: dict[str, int] = {}
    for label, size, stride in zip(labels, x.shape, strides_of(x.shape), strict=True):
        if size == sizes[label]:
            strides[label] = strides.get(label, 0) + stride
        elif size != 1 or labels.count(label) > 1:
            raise ShapeError(f"axis {label!r} has the sizes {size} and {sizes[label]}")
    kept = tuple(strides)
    shape = [sizes[label] for label in kept]
    if kept == labels:
        return _Term(x, labels)
    return _Term(builder.view(x, shape, [strides[label] for label in kept]), kept)


def _cost(first: _Term, second: _Term) -> int:
    shared = [label for label in second.labels if label in first.labels]
    both = prod(second.size(label) for label in shared)
    result = first.tensor.size * second.tensor.size // max(both, 1)
    return result - first.tensor.size - second.tensor.size


def _summed(builder: Builder, term: _Term, kept: set[str]) -> _Term:
    axes = [axis for axis, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in kept)
    return _Term(builder.sum(term.tensor, axes, keep=False), labels)


def _product(builder: Builder, first: _Term, second: _Term, kept: set[str]) -> _Term:
    left = _summed(builder, first, kept | {*second.labels})
    right = _summed(builder, second, kept | {*first.labels})
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in kept]
    inner = [label for label in shared if label not in kept]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    labels = (*batch, *rows, *columns)
    if not inner or not (rows or columns):
        # nothing to contract, or one number per batch: elementwise products
        order = (*labels, *inner)
        result = builder.mul(_placed(builder, left, order), _placed(builder, right, order))
        return _summed(builder, _Term(result, order), {*labels})
    matrices = builder.matmul(
        _matrices(builder, left, batch, rows, inner),
        _matrices(builder, right, batch, inner, columns),
    )
    shape = [left.size(letter) for letter in (*batch, *rows)] + [
        right.size(letter) for letter in columns
    ]
    return _Term(builder.reshape(matrices, shape), labels)


def _matrices(
    builder: Builder, term: _Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> Tensor:
    order = [term.labels.index(label) for label in (*batch, *rows, *columns)]
    shape = [prod(term.size(label) for label in part) for part in (batch, rows, columns)]
    return builder.reshape(moves.transpose(builder, term.tensor, order), shape)


def _placed(builder: Builder, term: _Term, order: Sequence[str]) -> Tensor:
    # labels that the tensor lacks become axes of size 1
    own = [label for label in order if label in term.labels]
    moved = moves.transpose(builder, term.tensor, [term.labels.index(letter) for letter in own])
    return builder.reshape(moved, [term.size(letter) if letter in own else 1 for letter in order])
