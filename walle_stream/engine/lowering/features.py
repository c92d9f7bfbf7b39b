"""Feature operators of the domain ai.onnx.ml: encode, select, scale, impute and join."""

from math import floor, isnan
from typing import Any

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.limits import integer_limits
from walle_stream.engine.lowering.lookups import indices_of, taken
from walle_stream.engine.lowering.precision import require_numbers
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32, INT64, TEXT, check_size, is_floating, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

ML = "ai.onnx.ml"

_KINDS = ("int64s", "floats", "strings", "tensor")


@lowers("LabelEncoder", domain=ML)
def _label_encoder(call: Call) -> Result:
    if call.version < 2:  # noqa: PLR2004  # keys and values came with opset 2
        classes = np.array(call.texts("classes_strings") or (), TEXT)
        return _mapped(call, np.arange(len(classes)), classes)
    keys, values = _one_of(call, "keys"), _one_of(call, "values")
    if len(keys) != len(values):
        raise ShapeError(f"{len(keys)} keys and {len(values)} values")
    x = call.tensor(0)
    if x.dtype != keys.dtype:
        raise DTypeError(f"keys are of {keys.dtype.name}, the input is of {x.dtype.name}")
    return _encoded(call, keys, values, _default(call, values))


@lowers("CategoryMapper", domain=ML)
def _category_mapper(call: Call) -> Result:
    numbers = np.array(call.list("cats_int64s") or (), np.int64)
    names = np.array(call.texts("cats_strings") or (), TEXT)
    if len(numbers) != len(names):
        raise ShapeError(f"{len(numbers)} cats_int64s and {len(names)} cats_strings")
    return _mapped(call, numbers, names)


@lowers("OneHotEncoder", domain=ML)
def _one_hot_encoder(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    numbers, names = call.list("cats_int64s"), call.texts("cats_strings")
    if bool(numbers) == bool(names):
        raise LoweringError("one of cats_int64s and cats_strings must be given")
    if names:
        keys = np.array(names, TEXT)
    else:
        x, keys = builder.cast(require_numbers(x), INT64), np.array(numbers, np.int64)
    check_size((x.size, len(keys)))
    indices = indices_of(builder, x, keys)
    if not call.number("zeros", 1):
        # a value outside the categories fails at run time
        indices = taken(builder, np.arange(len(keys)), indices)
    column = moves.expand_axis(builder, indices, x.rank)
    return builder.cast(builder.equal(column, builder.constant(np.arange(len(keys)))), "float32")


def _mapped(call: Call, numbers: Array, names: Array) -> Result:
    x = call.tensor(0)
    if x.dtype == TEXT:
        default = call.number("default_int64", -1)
        return _encoded(call, names, numbers.astype(np.int64), default)
    if not is_integer(x.dtype):
        raise DTypeError(f"strings or whole numbers are expected, not {x.dtype.name}")
    return _encoded(call, numbers, names, call.text("default_string", "_Unused"))


def _encoded(call: Call, keys: Array, values: Array, default: Any) -> Tensor:
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1], table[-1] = values, default
    return taken(call.builder, table, indices_of(call.builder, call.tensor(0), keys))


def _one_of(call: Call, what: str) -> Array:
    kinds = [kind for kind in _KINDS if call.attribute(f"{what}_{kind}") is not None]
    if len(kinds) != 1:
        raise LoweringError(f"one of {what}_* must be given, not {len(kinds)}")
    name = f"{what}_{kinds[0]}"
    if kinds[0] == "strings":
        return np.array(call.texts(name), TEXT)
    if kinds[0] == "int64s":
        return np.array(call.list(name), np.int64)
    if kinds[0] == "floats":
        return reals(call, name)
    value = call.attribute(name)
    if not isinstance(value, np.ndarray):
        raise LoweringError(f"attribute {name!r} must be a tensor, not {value!r}")
    return value.reshape(-1)


def reals(call: Call, name: str) -> Array:
    """Return an attribute of numbers in float32; empty if it is omitted."""
    with np.errstate(over="ignore"):
        return np.array(call.reals(name), np.float64).astype(np.float32)


def _default(call: Call, values: Array) -> Any:
    tensor = call.attribute("default_tensor")
    if tensor is not None:
        if not isinstance(tensor, np.ndarray) or tensor.size != 1:
            raise LoweringError("default_tensor is not a tensor of one element")
        if tensor.dtype != values.dtype:
            raise DTypeError(
                f"default_tensor is of {tensor.dtype.name}, values {values.dtype.name}"
            )
        return tensor.reshape(-1)[0]
    if values.dtype == TEXT:
        return call.text("default_string", "_Unused")
    if is_floating(values.dtype):
        return call.real("default_float", -0.0)
    return call.number("default_int64", -1)


def floats(call: Call) -> Tensor:
    """Return the first input as floats: float64 stays, any other dtype becomes float32."""
    x = require_numbers(call.tensor(0))
    return x if x.dtype == np.float64 else call.builder.cast(x, FLOAT32)


@lowers("ArrayFeatureExtractor", domain=ML)
def _array_feature_extractor(call: Call) -> Result:
    x, indices, builder = call.tensor(0), call.tensor(1), call.builder
    if not x.rank:
        raise ShapeError("a scalar has no features")
    if not is_integer(indices.dtype):
        raise DTypeError(f"indices must be whole numbers, not {indices.dtype.name}")
    rows = builder.reshape(x, (*(x.shape[:-1] or (1,)), x.shape[-1]))
    flat = builder.reshape(builder.cast(indices, INT64), (indices.size,))
    return take(builder, rows, flat, rows.rank - 1)


@lowers("Binarizer", domain=ML)
def _binarizer(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    threshold = call.real("threshold", 0.0)
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
    for number, part in enumerate(parts):
        if part.rank not in {1, 2}:
            raise ShapeError(f"input {number} of shape {list(part.shape)} is not a matrix")
        matrix = call.builder.reshape(part, (1, *part.shape)) if part.rank == 1 else part
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
        imputed = reals(call, "imputed_value_floats")
        replaced = call.real("replaced_value_float", 0)
    else:
        imputed = np.array(call.list("imputed_value_int64s") or (), np.int64)
        replaced = call.number("replaced_value_int64", 0)
    _check_features(x, imputed, "imputed values")
    is_missing = builder.is_nan(x) if isnan(replaced) else builder.equal(x, replaced)
    return builder.select(is_missing, builder.constant(imputed.astype(x.dtype)), x)


@lowers("Normalizer", domain=ML)
def _normalizer(call: Call) -> Result:
    x, builder = floats(call), call.builder
    norm = call.choice("norm", ("MAX", "L1", "L2"), "MAX")
    if x.rank not in {1, 2}:
        raise ShapeError(f"shape {list(x.shape)} is neither [C] nor [N, C]")
    axes = [x.rank - 1]
    if norm == "MAX":
        length = builder.max(builder.abs(x), axes)
    elif norm == "L1":
        length = builder.sum(builder.abs(x), axes)
    else:
        length = builder.sqrt(builder.sum(builder.mul(x, x), axes))
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
