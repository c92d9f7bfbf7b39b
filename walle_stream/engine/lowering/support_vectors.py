"""Support vector machines of the domain ai.onnx.ml."""

from itertools import combinations, pairwise

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import sigmoid
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.features import ML, floats, reals
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.lowering.scores import (
    as_matrix,
    both_sides,
    greatest,
    labelled,
    labelled_by_sign,
    labels,
    transformed,
)
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.region import Region, View
from walle_stream.engine.rules import FLOAT32, check_size
from walle_stream.errors import LoweringError, ShapeError

_BINARY = 2
_SURE = 1e-7
"""Smallest distance of a pair's probability from 0 and 1."""

_COUPLED_MAX = 256
"""Largest number of classes whose probabilities are coupled; each takes a step of elimination."""


@lowers("SVMRegressor", domain=ML)
def _svm_regressor(call: Call) -> Result:
    builder, x = call.builder, as_matrix(call, floats(call))
    count, coefficients = call.number("n_supports", 0), reals(call, "coefficients")
    kernels = _kernels(call, x, _vectors(call, count, x)) if count > 0 else x
    if len(coefficients) != kernels.shape[1]:
        raise ShapeError(f"{len(coefficients)} coefficients of {kernels.shape[1]} products")
    column = builder.constant(coefficients.reshape(-1, 1).astype(x.dtype))
    scores = builder.add(builder.matmul(kernels, column), _rho(call, 1).astype(x.dtype)[0].item())
    if call.number("one_class", 0):
        scores = builder.select(builder.less(0, scores), 1, builder.as_tensor(-1, scores))
    result = transformed(builder, scores, call.text("post_transform", "NONE"))
    return builder.cast(result, FLOAT32)


@lowers("SVMClassifier", domain=ML)
def _svm_classifier(call: Call) -> Result:
    builder, x = call.builder, as_matrix(call, floats(call))
    names, transform = labels(call, "classlabels_ints"), call.text("post_transform", "NONE")
    classes = 1 if names is None else len(names)
    coefficients = reals(call, "coefficients")
    sizes = call.list("vectors_per_class") or ()
    votes, has_proba = None, False
    if sum(sizes) > 0:
        if len(sizes) != classes or min(sizes) < 0:
            raise ShapeError(f"vectors_per_class {list(sizes)} of {classes} classes")
        scores = _pairs(call, x, sizes, coefficients)
        votes = _votes(builder, scores, classes)
        if len(reals(call, "prob_a")):
            scores, has_proba = _probabilities(call, scores, classes), True
    else:
        scores = _linear(call, x, classes, coefficients)
    ranked = scores if votes is None else votes
    if len(reals(call, "rho")) == 1 and classes == 1:
        label = labelled_by_sign(builder, ranked, names, 0.0, inclusive=False)
    else:
        best = greatest(builder, ranked)
        is_single = len(reals(call, "rho")) == 1 and classes == _BINARY and not has_proba
        if is_single and coefficients.min(initial=0) >= 0:
            # if no coefficient is negative, a score from 0.5 selects the second class
            most = builder.max(ranked, [1], keep=False)
            best = builder.select(builder.less_equal(0.5, most), 1, best)
        label = labelled(builder, best, names)
    if scores.shape[1] == 1 and classes == _BINARY and transform != "PROBIT":
        scores = both_sides(builder, scores)
    return label, builder.cast(transformed(builder, scores, transform), FLOAT32)


def _linear(call: Call, x: Tensor, classes: int, coefficients: Array) -> Tensor:
    count = len(coefficients)
    if count != classes * x.shape[1]:
        raise ShapeError(f"{count} coefficients, {classes} classes, {x.shape[1]} features")
    weights = coefficients.reshape(classes, -1).T.astype(x.dtype)
    scores = call.builder.matmul(x, call.builder.constant(weights))
    return call.builder.add(scores, float(_rho(call, 1)[0]))


def _pairs(call: Call, x: Tensor, sizes: tuple[int, ...], coefficients: Array) -> Tensor:
    # (N, pairs): each pair of classes has a column of weights over all support vectors
    builder, count, classes = call.builder, sum(sizes), len(sizes)
    if len(coefficients) != (classes - 1) * count:
        raise ShapeError(f"{len(coefficients)} coefficients, {classes} classes, {count} vectors")
    rows = coefficients.reshape(classes - 1, count)
    ends = np.cumsum([0, *sizes]).tolist()
    spans = [slice(begin, end) for begin, end in pairwise(ends)]
    pairs = [*combinations(range(classes), 2)]
    check_size((count, len(pairs)))
    weights = np.zeros((count, len(pairs)), x.dtype)
    for number, (i, j) in enumerate(pairs):
        weights[spans[i], number] = rows[j - 1, spans[i]]
        weights[spans[j], number] = rows[i, spans[j]]
    kernels = _kernels(call, x, _vectors(call, count, x))
    scores = builder.matmul(kernels, builder.constant(weights))
    return builder.add(scores, builder.constant(_rho(call, len(pairs)).astype(x.dtype)))


def _votes(builder: Builder, scores: Tensor, classes: int) -> Tensor:
    pairs = [*combinations(range(classes), 2)]
    change = np.zeros((len(pairs), classes), scores.dtype)
    lost = np.zeros(classes, scores.dtype)
    for number, (i, j) in enumerate(pairs):
        change[number, i], change[number, j] = 1, -1
        lost[j] += 1
    won = builder.cast(builder.less(0, scores), scores.dtype)
    return builder.add(builder.matmul(won, builder.constant(change)), builder.constant(lost))


def _probabilities(call: Call, scores: Tensor, classes: int) -> Tensor:
    # pairs by Platt, classes by the least squares of Wu, Lin and Weng (2004); this computes the
    # exact minimum, which libsvm approximates iteratively
    builder, pairs = call.builder, [*combinations(range(classes), 2)]
    a, b = reals(call, "prob_a"), reals(call, "prob_b")
    if not len(a) == len(b) == len(pairs):
        raise ShapeError(f"{len(a)} prob_a and {len(b)} prob_b of {len(pairs)} pairs")
    if classes > _COUPLED_MAX:
        raise LoweringError(f"probabilities of {classes} classes, more than {_COUPLED_MAX}")
    line = builder.add(
        builder.mul(scores, builder.constant(a.astype(scores.dtype))),
        builder.constant(b.astype(scores.dtype)),
    )
    first = sigmoid(builder, builder.neg(line))
    first = builder.minimum(builder.maximum(builder.cast(first, "float64"), _SURE), 1 - _SURE)
    second = builder.sub(1, first)
    if classes == _BINARY:
        return builder.cast(moves.concat(builder, [first, second], 1), scores.dtype)
    return builder.cast(_coupled(builder, first, second, classes), scores.dtype)


def _coupled(builder: Builder, first: Tensor, second: Tensor, classes: int) -> Tensor:
    rows, pairs = first.shape
    check_size((rows, classes, classes + 1))
    regions = [
        Region((rows,), View(number, (pairs,)), View(offset, (classes * classes,)), source)
        for number, (i, j) in enumerate(combinations(range(classes), 2))
        for source, offset in ((0, i * classes + j), (1, j * classes + i))
    ]
    matrix = builder.raster([first, second], (rows, classes, classes), regions, 0)
    turned = moves.transpose(builder, matrix, (0, 2, 1))
    diagonal = builder.constant(np.eye(classes))
    squares = builder.sum(builder.mul(turned, turned), [2])
    # adding 1 everywhere makes the matrix invertible; as probabilities sum to 1, it adds a constant
    left = builder.add(builder.sub(builder.mul(squares, diagonal), builder.mul(turned, matrix)), 1)
    right = builder.broadcast(builder.constant(1.0), (rows, classes, 1))
    system = moves.concat(builder, [left, right], 2)
    for number in range(classes):
        pivot = moves.slice_axis(builder, system, 1, number, number + 1)
        pivot = builder.div(pivot, moves.slice_axis(builder, pivot, 2, number, number + 1))
        column = moves.slice_axis(builder, system, 2, number, number + 1)
        unit = builder.constant(np.eye(classes)[number].reshape(1, classes, 1))
        system = builder.sub(system, builder.mul(builder.sub(column, unit), pivot))
    solved = builder.reshape(
        moves.slice_axis(builder, system, 2, classes, classes + 1), (rows, classes)
    )
    return builder.div(solved, builder.sum(solved, [1]))


def _kernels(call: Call, x: Tensor, vectors: Array) -> Tensor:
    builder, kind = call.builder, call.text("kernel_type", "LINEAR")
    parameters = reals(call, "kernel_params")
    if len(parameters) not in {0, 3}:
        raise LoweringError(
            f"kernel_params are gamma, coef0 and degree, not {len(parameters)} numbers"
        )
    gamma, offset, degree = (
        float(number) for number in (parameters if len(parameters) else (0, 0, 0))
    )
    if kind == "RBF":
        return builder.cast(_distances(builder, x, vectors, -gamma), x.dtype)
    product = builder.matmul(x, builder.constant(vectors.T.astype(x.dtype)))
    if kind == "LINEAR":
        return product
    line = builder.add(builder.mul(product, gamma), offset)
    if kind == "POLY":
        return builder.pow(line, int(degree))
    if kind == "SIGMOID":
        return builder.tanh(line)
    raise LoweringError(f"kernel_type {kind!r} is not LINEAR, POLY, RBF or SIGMOID")


def _distances(builder: Builder, x: Tensor, vectors: Array, factor: float) -> Tensor:
    # |x - v|^2 = |x|^2 - 2 x v + |v|^2, in float64 because of the cancellation
    wide, known = builder.cast(x, "float64"), vectors.astype(np.float64)
    products = builder.matmul(wide, builder.constant(known.T * -2))
    lengths = builder.sum(builder.mul(wide, wide), [1])
    own = builder.constant((known * known).sum(axis=1))
    square = builder.maximum(builder.add(builder.add(products, lengths), own), 0)
    return builder.exp(builder.mul(square, factor))


def _vectors(call: Call, count: int, x: Tensor) -> Array:
    value = reals(call, "support_vectors")
    check_size((count, x.shape[1]), "support vectors")
    if len(value) != count * x.shape[1]:
        raise ShapeError(f"{len(value)} numbers, {count} support vectors, {x.shape[1]} features")
    return value.reshape(count, x.shape[1])


def _rho(call: Call, count: int) -> Array:
    value = reals(call, "rho")
    if len(value) < count:
        raise ShapeError(f"{len(value)} numbers of rho, not {count}")
    return value[:count]
