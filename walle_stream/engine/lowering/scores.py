"""Linear models of ai.onnx.ml, and transforms and labels of scores for all models."""

from math import log, pi, sqrt
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import sigmoid
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.features import ML, floats, reals
from walle_stream.engine.lowering.lookups import taken
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32, INT64, TEXT
from walle_stream.errors import LoweringError, ShapeError

TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Transforms, in the order of their numbers in ``TreeEnsemble``."""

_TINY: Final = 1e-7
"""Scores up to this count as zero for SOFTMAX_ZERO."""

_WINITZKI: Final = 0.147


def transformed(builder: Builder, scores: Tensor, transform: str) -> Tensor:
    """Apply one of ``TRANSFORMS`` to floating-point scores ``(N, E)``.

    Raises:
        LoweringError: There is no such transform.
    """
    if transform not in TRANSFORMS:
        raise LoweringError(f"post_transform {transform!r} is not one of {', '.join(TRANSFORMS)}")
    if transform == "NONE" or not scores.size:
        return scores
    if transform == "LOGISTIC":
        return sigmoid(builder, scores)
    if transform == "PROBIT":
        return _probit(builder, scores)
    most = builder.max(scores, [1])
    power = builder.exp(builder.sub(scores, most))
    if transform == "SOFTMAX":
        return builder.div(power, builder.sum(power, [1]))
    is_score = builder.less(_TINY, builder.abs(scores))
    scaled = builder.mul(scores, builder.exp(builder.neg(most)))
    weights = builder.select(is_score, power, scaled)
    total = builder.sum(weights, [1])
    return builder.select(builder.equal(total, 0), 0.5, builder.div(weights, total))


def _probit(builder: Builder, x: Tensor) -> Tensor:
    # sqrt(2) erfinv(2 x - 1): Winitzki's approximation, then Newton's steps
    wanted = builder.sub(builder.mul(x, 2), 1)
    rest = builder.sub(1, builder.mul(wanted, wanted))
    logarithm = builder.log(rest)
    middle = builder.add(builder.mul(logarithm, 0.5), 2 / (pi * _WINITZKI))
    square = builder.sub(builder.mul(middle, middle), builder.mul(logarithm, 1 / _WINITZKI))
    size = builder.sub(builder.sqrt(square), middle)
    root = builder.sqrt(builder.maximum(size, 0))
    guess = builder.mul(root, builder.sign(wanted))
    better = guess
    for _ in range(2):
        error = builder.sub(builder.erf(better), wanted)
        growth = builder.exp(builder.mul(better, better))
        better = builder.sub(better, builder.mul(builder.mul(error, growth), sqrt(pi) / 2))
    # far out the steps are infinite, and the guess is accurate
    is_far = builder.less(sqrt(-log(1e-6)), root)
    return builder.mul(builder.select(is_far, guess, better), sqrt(2))


def labels(call: Call, ints: str) -> Array | None:
    """Return the labels of a classifier, int64 or strings; None if it has neither.

    Raises:
        LoweringError: The classifier has both.
    """
    numbers, names = call.list(ints), call.texts("classlabels_strings")
    if numbers and names:
        raise LoweringError(f"only one of {ints} and classlabels_strings may be given")
    if names:
        return np.array(names, TEXT)
    return np.array(numbers, np.int64) if numbers else None


def greatest(builder: Builder, scores: Tensor) -> Tensor:
    """Return the int64 index ``(N,)`` of the highest score ``(N, E)``, the first of equal ones."""
    result = builder.emit(Operator.ARG_MAX, scores, axis=1)
    return builder.reshape(result, (scores.shape[0],))


def labelled(builder: Builder, indices: Tensor, names: Array | None) -> Tensor:
    """Return the labels of classes by int64 numbers; without names the numbers are the labels."""
    return indices if names is None else taken(builder, names, indices)


def labelled_by_sign(
    builder: Builder, scores: Tensor, names: Array | None, threshold: float, *, inclusive: bool
) -> Tensor:
    """Return the labels of one score ``(N, 1)``, which is compared with a threshold.

    The label is the name, or 1 without names; below the threshold it is 0 or the empty string.
    With ``inclusive`` a score equal to the threshold is enough.
    """
    flat = builder.reshape(scores, (scores.shape[0],))
    operator = Operator.LESS_EQUAL if inclusive else Operator.LESS
    indices = builder.cast(builder.binary(operator, threshold, flat), INT64)
    if names is None:
        return indices
    nothing = "" if names.dtype == TEXT else 0
    table = np.empty(2, names.dtype)
    table[:] = [nothing, names[0]]
    return taken(builder, table, indices)


def both_sides(builder: Builder, scores: Tensor, *, complement: bool = False) -> Tensor:
    """Add the opposite class to a score s ``(N, 1)``: ``(N, 2)`` with -s or 1 - s, then s."""
    other = builder.sub(1, scores) if complement else builder.neg(scores)
    return moves.concat(builder, [other, scores], 1)


_BINARY = 2


@lowers("LinearRegressor", domain=ML)
def _linear_regressor(call: Call) -> Result:
    coefficients, count = reals(call, "coefficients"), call.number("targets", 1)
    if not 0 < count <= max(len(coefficients), 1) or len(coefficients) % count:
        raise ShapeError(f"{len(coefficients)} coefficients of {count} targets")
    scores = _scored(call, coefficients.reshape(count, -1))
    result = transformed(call.builder, scores, call.text("post_transform", "NONE"))
    return call.builder.cast(result, FLOAT32)


@lowers("LinearClassifier", domain=ML)
def _linear_classifier(call: Call) -> Result:
    builder, transform = call.builder, call.text("post_transform", "NONE")
    names, coefficients = labels(call, "classlabels_ints"), reals(call, "coefficients")
    features = as_matrix(call, floats(call)).shape[1]
    if not features or not len(coefficients) or len(coefficients) % features:
        raise ShapeError(f"{len(coefficients)} coefficients of {features} features")
    scores = _scored(call, coefficients.reshape(-1, features))
    if names is not None and scores.shape[1] == 1 and len(names) == _BINARY:
        scores = both_sides(builder, scores)
    if names is not None and len(names) < scores.shape[1]:
        raise ShapeError(f"{len(names)} labels of {scores.shape[1]} classes")
    result = transformed(builder, scores, transform)
    if scores.shape[1] > 1:
        label = labelled(builder, greatest(builder, scores), names)
    else:
        threshold = 0.0 if transform == "NONE" else 0.5
        label = labelled_by_sign(builder, result, names, threshold, inclusive=True)
    return label, builder.cast(result, FLOAT32)


def as_matrix(call: Call, x: Tensor) -> Tensor:
    """Return observations as ``(N, F)``; a single one ``(F,)`` gets a first axis.

    Raises:
        ShapeError: The tensor has another rank.
    """
    if x.rank not in {1, 2}:
        raise ShapeError(f"shape {list(x.shape)} is neither [F] nor [N, F]")
    return call.builder.reshape(x, (1, *x.shape)) if x.rank == 1 else x


def _scored(call: Call, coefficients: Array) -> Tensor:
    builder, x = call.builder, as_matrix(call, floats(call))
    count, features = coefficients.shape
    if x.shape[1] != features:
        raise ShapeError(f"{features} coefficients per row for {x.shape[1]} features")
    scores = builder.matmul(x, builder.constant(coefficients.T.astype(x.dtype)))
    intercepts = reals(call, "intercepts")
    if not len(intercepts):
        return scores
    if len(intercepts) != count:
        raise ShapeError(f"{len(intercepts)} intercepts of {count} rows of coefficients")
    return builder.add(scores, builder.constant(intercepts.astype(x.dtype)))
