"""Support vector machines of the domain ai.onnx.ml."""

from itertools import combinations, pairwise

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import sigmoid
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.coupling import coupling, coupling_stages
from walle_stream.engine.lowering.features import ML, floats, reals
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Call, Result, lowers
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
from walle_stream.engine.rules import FLOAT32, FLOAT64, check_size
from walle_stream.errors import LoweringError, ShapeError

_BINARY = 2
_SURE = 1e-7
"""Smallest distance of a pair's probability from 0 and 1."""

_COUPLED_MAX = 256
"""Largest number of classes whose probabilities are coupled; each takes steps of a sweep."""


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
    has_proba = len(reals(call, "prob_a")) > 0 and sum(call.list("vectors_per_class") or ()) > 0
    if has_proba and call.wants(1):
        return coupling_stages(call, labels(call, "classlabels_ints"))
    builder, transform = call.builder, call.text("post_transform", "NONE")
    names, scores, ranked = _classified(call, floats(call))
    classes, coefficients = 1 if names is None else len(names), reals(call, "coefficients")
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


def _classified(call: Call, x: Tensor) -> tuple[Array | None, Tensor, Tensor]:
    # labels, the scores of pairs or of classes, and votes for classes or the same scores
    x, names = as_matrix(call, x), labels(call, "classlabels_ints")
    classes, coefficients = 1 if names is None else len(names), reals(call, "coefficients")
    sizes = call.list("vectors_per_class") or ()
    if sum(sizes) <= 0:
        scores = _linear(call, x, classes, coefficients)
        return names, scores, scores
    if len(sizes) != classes or min(sizes) < 0:
        raise ShapeError(f"vectors_per_class {list(sizes)} of {classes} classes")
    scores = _pairs(call, x, sizes, coefficients)
    return names, scores, _votes(call.builder, scores, classes)


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


@lowers("SVMClassifier", domain=INNER_DOMAIN)
def _first_stage(call: Call) -> Result:
    # labels, and what the sweeps need; in float64, as libsvm: the slopes of pairs enlarge errors
    names, scores, votes = _classified(call, call.builder.cast(floats(call), FLOAT64))
    classes = votes.shape[1]
    label = labelled(call.builder, greatest(call.builder, votes), names)
    return label, *coupling(call.builder, _first_of_pairs(call, scores, classes), classes)


def _first_of_pairs(call: Call, scores: Tensor, classes: int) -> Tensor:
    # (pairs, N): for each pair the probability of its first class, by Platt
    builder, pairs = call.builder, classes * (classes - 1) // 2
    a, b = reals(call, "prob_a"), reals(call, "prob_b")
    if not len(a) == len(b) == pairs:
        raise ShapeError(f"{len(a)} prob_a and {len(b)} prob_b of {pairs} pairs")
    if classes > _COUPLED_MAX:
        raise LoweringError(f"probabilities of {classes} classes, more than {_COUPLED_MAX}")
    slopes, offsets = (builder.constant(-numbers, FLOAT64) for numbers in (a, b))
    line = builder.add(builder.mul(scores, slopes), offsets)
    first = moves.transpose(builder, sigmoid(builder, line), (1, 0))
    return builder.clip(first, _SURE, 1 - _SURE)


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
