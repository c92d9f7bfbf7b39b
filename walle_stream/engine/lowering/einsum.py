"""Einsum: diagonals are views, sums and products are contracted pair by pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from string import ascii_letters

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import strides_of
from walle_stream.engine.rules import is_floating
from walle_stream.errors import LoweringError, ShapeError

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor whose axes have labels, each once."""

    tensor: Tensor
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        return self.tensor.shape[self.labels.index(label)]


@lowers("Einsum")
def _einsum(call: Call) -> Result:
    builder, tensors = call.builder, call.tensors()
    given = tensors[0].dtype
    if is_floating(given):
        tensors = [builder.cast(each, wide_dtype(given, each.dtype)) for each in tensors]
    inputs, wanted = _parsed(call.text("equation"), [each.rank for each in tensors])
    named = list(zip(tensors, inputs, strict=True))
    sizes: dict[str, int] = {}
    for tensor, labels in named:
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
    terms = [_diagonal(builder, tensor, labels, sizes) for tensor, labels in named]
    while len(terms) > 1:
        first, second = min(combinations(terms, 2), key=lambda pair: _cost(*pair))
        terms = [each for each in terms if each is not first and each is not second]
        kept = {*wanted, *(label for each in terms for label in each.labels)}
        terms.append(_product(builder, first, second, kept))
    last = _summed(builder, terms[0], {*wanted})
    order = [last.labels.index(each) for each in wanted]
    return builder.cast(moves.transpose(builder, last.tensor, order), given)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise LoweringError(f"equation {equation!r} is of {len(terms)} inputs, not {len(ranks)}")
    widths = [
        rank - len(term.replace(_ELLIPSIS, "")) if _ELLIPSIS in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    width = max(widths)
    inputs = []
    for term, rank, own in zip(terms, ranks, widths, strict=True):
        labels = _labels(equation, term, max(own, 0))
        if len(labels) != rank:
            raise ShapeError(f"equation {equation!r}: {term!r} of a tensor of {rank} axes")
        inputs.append(labels)
    counts = Counter(label for labels in inputs for label in labels)
    if arrow:
        wanted = _labels(equation, right, width)
        if len({*wanted}) != len(wanted) or not counts.keys() >= {*wanted}:
            raise LoweringError(f"equation {equation!r}: its output is not of its inputs' axes")
    else:
        once = sorted(each for each in counts if counts[each] == 1 and each in ascii_letters)
        wanted = (*_labels(equation, _ELLIPSIS if width else "", width), *once)
    return inputs, wanted


def _labels(equation: str, term: str, width: int) -> tuple[str, ...]:
    # the axes of an ellipsis are called by their place from the end
    before, dots, behind = term.partition(_ELLIPSIS)
    if any(each not in ascii_letters for each in before + behind):
        raise LoweringError(f"equation {equation!r}: {term!r} is not of letters")
    middle = [f"...{number}" for number in range(width, 0, -1)] if dots else []
    return (*before, *middle, *behind)


def _diagonal(
    builder: Builder, x: Tensor, labels: tuple[str, ...], sizes: Mapping[str, int]
) -> _Term:
    # an axis of size 1 that others spread is dropped: it is a factor of all of them
    strides: dict[str, int] = {}
    for label, size, stride in zip(labels, x.shape, strides_of(x.shape), strict=True):
        if size == sizes[label]:
            strides[label] = strides.get(label, 0) + stride
        elif size != 1 or labels.count(label) > 1:
            raise ShapeError(f"axis {label!r} is of size {size} and of size {sizes[label]}")
    kept = tuple(strides)
    shape = [sizes[label] for label in kept]
    if kept == labels:
        return _Term(x, labels)
    if not x.size:
        return _Term(builder.raster([x], shape, []), kept)
    return _Term(builder.view(x, shape, [strides[label] for label in kept]), kept)


def _cost(first: _Term, second: _Term) -> int:
    shared = [each for each in second.labels if each in first.labels]
    both = prod(second.size(each) for each in shared)
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
        # nothing to contract, or one number a batch: products of elements
        order = (*labels, *inner)
        result = builder.mul(_placed(builder, left, order), _placed(builder, right, order))
        return _summed(builder, _Term(result, order), {*labels})
    matrices = builder.matmul(
        _matrices(builder, left, batch, rows, inner),
        _matrices(builder, right, batch, inner, columns),
    )
    shape = [left.size(each) for each in (*batch, *rows)] + [right.size(each) for each in columns]
    return _Term(builder.reshape(matrices, shape), labels)


def _matrices(
    builder: Builder, term: _Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> Tensor:
    order = [term.labels.index(each) for each in (*batch, *rows, *columns)]
    shape = [prod(term.size(each) for each in part) for part in (batch, rows, columns)]
    return builder.reshape(moves.transpose(builder, term.tensor, order), shape)


def _placed(builder: Builder, term: _Term, order: Sequence[str]) -> Tensor:
    # axes of size 1 where the tensor has none
    own = [label for label in order if label in term.labels]
    moved = moves.transpose(builder, term.tensor, [term.labels.index(each) for each in own])
    return builder.reshape(moved, [term.size(each) if each in own else 1 for each in order])
