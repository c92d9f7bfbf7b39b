"""Features of the domain ai.onnx.ml: chosen, scaled, filled in, joined."""

from math import floor, isnan

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.encoders import ML, reals
from walle_stream.engine.lowering.limits import integer_limits
from walle_stream.engine.lowering.precision import require_numbers
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32, INT64, check_size, is_floating, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_MATRIX = 2


def floats(call: Call) -> Tensor:
    """Give the first input as floats: float64 stays, all others become float32."""
    x = require_numbers(call.tensor(0))
    return x if x.dtype == np.float64 else call.builder.cast(x, FLOAT32)


@lowers("ArrayFeatureExtractor", domain=ML)
def _array_feature_extractor(call: Call) -> Result:
    x, places, builder = call.tensor(0), call.tensor(1), call.builder
    if not x.rank:
        raise ShapeError("a scalar has no features")
    if not is_integer(places.dtype):
        raise DTypeError(f"indices must be whole numbers, not {places.dtype.name}")
    rows = builder.reshape(x, (*(x.shape[:-1] or (1,)), x.shape[-1]))
    flat = builder.reshape(builder.cast(places, INT64), (places.size,))
    return take(builder, rows, flat, rows.rank - 1)


@lowers("Binarizer", domain=ML)
def _binarizer(call: Call) -> Result:
    x, builder, threshold = (
        require_numbers(call.tensor(0)),
        call.builder,
        call.real("threshold", 0.0),
    )
    if is_floating(x.dtype):
        return builder.cast(builder.less(threshold, x), x.dtype)
    least, most = integer_limits(x.dtype)
    if isnan(threshold) or threshold >= most:
        return builder.broadcast(builder.as_tensor(0, x), x.shape)
    if threshold < least:
        return builder.broadcast(builder.as_tensor(1, x), x.shape)
    return builder.cast(builder.less(floor(threshold), x), x.dtype)


@lowers("FeatureVectorizer", domain=ML)
def _feature_vectorizer(call: Call) -> Result:
    parts = [require_numbers(x, f"input {n}") for n, x in enumerate(call.tensors())]
    sizes = call.list("inputdimensions")
    if sizes is not None and (len(sizes) != len(parts) or min(sizes, default=0) < 0):
        raise LoweringError(f"inputdimensions {sizes} of {len(parts)} inputs")
    columns = []
    for number, each in enumerate(parts):
        if each.rank not in {1, _MATRIX}:
            raise ShapeError(f"input {number} of shape {list(each.shape)} is no matrix")
        matrix = call.builder.reshape(each, (1, *each.shape)) if each.rank == 1 else each
        if sizes is not None:
            check_size((matrix.shape[0], sizes[number]))
            matrix = moves.pad(
                call.builder, matrix, (0, 0), (0, sizes[number] - matrix.shape[1]), 0
            )
        columns.append(call.builder.cast(matrix, FLOAT32))
    return moves.concat(call.builder, columns, 1)


@lowers("Imputer", domain=ML)
def _imputer(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    if is_floating(x.dtype):
        imputed, replaced = (
            reals(call, "imputed_value_floats"),
            call.real("replaced_value_float", 0),
        )
    else:
        imputed = np.array(call.list("imputed_value_int64s") or (), np.int64)
        replaced = call.number("replaced_value_int64", 0)
    _check_features(x, imputed, "imputed values")
    is_missing = (
        builder.unary(Operator.IS_NAN, x) if isnan(replaced) else builder.equal(x, replaced)
    )
    return builder.select(is_missing, builder.constant(imputed.astype(x.dtype)), x)


@lowers("Normalizer", domain=ML)
def _normalizer(call: Call) -> Result:
    x, builder, norm = floats(call), call.builder, call.text("norm", "MAX")
    if x.rank not in {1, _MATRIX}:
        raise ShapeError(f"shape {list(x.shape)} is neither [C] nor [N, C]")
    axes = [x.rank - 1]
    if norm == "MAX":
        length = builder.reduce(Operator.REDUCE_MAX, builder.unary(Operator.ABS, x), axes)
    elif norm == "L1":
        length = builder.sum(builder.unary(Operator.ABS, x), axes)
    elif norm == "L2":
        length = builder.unary(Operator.SQRT, builder.sum(builder.mul(x, x), axes))
    else:
        raise LoweringError(f"norm {norm!r} is not MAX, L1 or L2")
    divisor = builder.select(builder.equal(length, 0), 1, length)
    return builder.cast(builder.div(x, divisor), FLOAT32)


@lowers("Scaler", domain=ML)
def _scaler(call: Call) -> Result:
    x, builder = floats(call), call.builder
    for name, operator in (("offset", Operator.SUB), ("scale", Operator.MUL)):
        if call.attribute(name) is not None:
            values = reals(call, name)
            _check_features(x, values, name)
            x = builder.binary(operator, x, builder.constant(values.astype(x.dtype)))
    return builder.cast(x, FLOAT32)


def _check_features(x: Tensor, values: Array, what: str) -> None:
    features = x.shape[-1] if x.rank else 1
    if len(values) not in {1, features}:
        raise ShapeError(f"{len(values)} {what} for {features} features")
