"""Linear models of the domain ai.onnx.ml."""

from walle_stream.engine.lowering.encoders import ML, reals
from walle_stream.engine.lowering.features import floats
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.lowering.scores import (
    both_sides,
    greatest,
    labelled,
    labelled_by_sign,
    labels,
    transformed,
)
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32
from walle_stream.errors import ShapeError

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
    """Give one observation ``(F,)`` the axis of many: ``(N, F)``.

    Raises:
        ShapeError: It has another rank.
    """
    if x.rank not in {1, 2}:
        raise ShapeError(f"shape {list(x.shape)} is neither [F] nor [N, F]")
    return call.builder.reshape(x, (1, *x.shape)) if x.rank == 1 else x


def _scored(call: Call, coefficients: Array) -> Tensor:
    builder, x = call.builder, as_matrix(call, floats(call))
    count, features = coefficients.shape
    if x.shape[1] != features:
        raise ShapeError(f"{features} coefficients a row for {x.shape[1]} features")
    scores = builder.matmul(x, builder.constant(coefficients.T.astype(x.dtype)))
    intercepts = reals(call, "intercepts")
    if not len(intercepts):
        return scores
    if len(intercepts) != count:
        raise ShapeError(f"{len(intercepts)} intercepts of {count} rows of coefficients")
    return builder.add(scores, builder.constant(intercepts.astype(x.dtype)))
