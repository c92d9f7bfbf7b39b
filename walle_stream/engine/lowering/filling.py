"""Rules that make tensors of a given shape: constants, ranges, diagonals and random numbers."""

import struct
from math import ceil, isfinite, pi, prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.element_types import attribute_dtype
from walle_stream.engine.lowering.precision import require_floating
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Tensor
from walle_stream.engine.region import Region, Shape, View
from walle_stream.engine.rules import (
    FLOAT32,
    FLOAT64,
    INT64,
    TEXT,
    check_size,
    check_table,
    is_floating,
    is_integer,
)
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_MULTINOMIAL = (np.dtype(np.int32), INT64)


@lowers("ConstantOfShape", kind=Kind.TRANSFORM)
def _constant_of_shape(call: Call) -> Result:
    shape = call.numbers(0)
    if shape is None or call.tensor(0).rank != 1:
        raise ShapeError("the shape is not a list of sizes")
    value = call.attribute("value")
    one = np.zeros(1, FLOAT32) if value is None else value
    if not isinstance(one, np.ndarray) or one.size != 1:
        raise LoweringError(f"attribute 'value' is {one!r}, not one element")
    return _filled(call.builder, shape, one)


def _filled(builder: Builder, shape: Shape, one: Array) -> Tensor:
    check_size(shape)
    return builder.broadcast(builder.constant(one.reshape(())), shape)


@lowers("ConstantFill", kind=Kind.TRANSFORM)
def _constant_fill(call: Call) -> Result:
    dtype = attribute_dtype(call, "dtype", FLOAT32)
    extra = call.list("extra_shape") or ()
    if call.has(0):
        sizes = call.numbers(0) if call.number("input_as_shape", 0) else call.tensor(0).shape
    else:
        sizes = call.list("shape")
    return _filled(
        call.builder, (*(sizes or ()), *extra), np.array(call.real("value", 0.0)).astype(dtype)
    )


@lowers("Range", kind=Kind.TRANSFORM)
def _range(call: Call) -> Result:
    arrays = [call.values(number) for number in range(3)]
    if any(array.size != 1 for array in arrays) or len({array.dtype for array in arrays}) > 1:
        raise ShapeError("start, limit and delta must have one element each, of one dtype")
    dtype = arrays[0].dtype
    kind = int if is_integer(dtype) else float
    start, limit, delta = (kind(array.reshape(-1)[0]) for array in arrays)
    if not delta or not all(map(isfinite, (start, limit, delta))):
        raise ShapeError(f"a range from {start} to {limit} by {delta} has no end")
    if is_floating(dtype):
        # float16 and bfloat16 are computed in float32, as the operator's stash_type says
        wide = dtype if dtype.itemsize >= FLOAT32.itemsize else FLOAT32
        (count,) = check_table((max(ceil((limit - start) / delta), 0),), "a range")
        result = wide.type(start) + np.arange(count, dtype=wide) * wide.type(delta)
    elif is_integer(dtype):
        count = -((int(limit) - int(start)) // -int(delta))
        (count,) = check_table((max(count, 0),), "a range")
        result = int(start) + np.arange(count, dtype=INT64) * int(delta)
    else:
        raise DTypeError(f"a range of {dtype.name}")
    return call.builder.constant(result.astype(dtype))


@lowers("EyeLike", kind=Kind.TRANSFORM)
def _eye_like(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    if x.rank != 2:  # noqa: PLR2004  # a matrix
        raise ShapeError(f"shape {list(x.shape)} is not a matrix")
    dtype = attribute_dtype(call, "dtype", x.dtype)
    if dtype == TEXT:
        raise DTypeError("text has no diagonal matrix")
    (rows, columns), k = x.shape, call.number("k", 0)
    count = max(0, min(rows - max(-k, 0), columns - max(k, 0)))
    start = max(-k, 0) * columns + max(k, 0)
    one = builder.constant(np.ones((), dtype))
    diagonal = Region((count,), View(0, (0,)), View(start, (columns + 1,)))
    return builder.raster([one], x.shape, [diagonal], 0)


def _seed(call: Call) -> int | None:
    value = call.attribute("seed")
    if value is None:
        return None
    try:
        return int.from_bytes(struct.pack("<f", call.real("seed")), "little")
    except OverflowError as error:
        raise LoweringError(f"attribute 'seed' is {value!r}, which float32 cannot hold") from error


def _uniform(call: Call, shape: Shape, dtype: DType) -> Tensor:
    # narrow floats have too few values between 0 and 1, so they are drawn in float32
    wide = FLOAT64 if dtype == FLOAT64 else FLOAT32
    return call.builder.emit(Operator.RANDOM, shape=check_size(shape), dtype=wide, seed=_seed(call))


def _shape_and_dtype(call: Call) -> tuple[Shape, DType]:
    if call.node.operator.endswith("Like"):
        x = call.tensor(0)
        shape, dtype = x.shape, attribute_dtype(call, "dtype", x.dtype)
    else:
        sizes = call.list("shape")
        if sizes is None:
            raise LoweringError("attribute 'shape' is missing")
        shape, dtype = sizes, attribute_dtype(call, "dtype", FLOAT32)
    if not is_floating(dtype):
        raise DTypeError(f"random numbers of {dtype.name}")
    return check_size(shape), dtype


@lowers("RandomUniform", "RandomUniformLike")
def _random_uniform(call: Call) -> Result:
    shape, dtype = _shape_and_dtype(call)
    low, high = call.real("low", 0.0), call.real("high", 1.0)
    drawn = call.builder.mul(_uniform(call, shape, dtype), high - low)
    return call.builder.cast(call.builder.add(drawn, low), dtype)


@lowers("RandomNormal", "RandomNormalLike")
def _random_normal(call: Call) -> Result:
    (shape, dtype), builder = _shape_and_dtype(call), call.builder
    count = prod(shape)
    half = -(-count // 2)
    drawn = _uniform(call, (2, half), dtype)
    # Box and Muller: a radius and an angle make two numbers; 1 - u is never 0
    first, second = moves.unjoined(builder, drawn, 0)
    angle = builder.mul(second, 2 * pi)
    radius = builder.sqrt(builder.mul(builder.log(builder.sub(1, first)), -2))
    both = moves.concat(
        builder,
        [
            builder.mul(radius, builder.unary(operator, angle))
            for operator in (Operator.COS, Operator.SIN)
        ],
        1,
    )
    line = moves.slice_axis(builder, both, 1, 0, count)
    scaled = builder.add(builder.mul(line, call.real("scale", 1.0)), call.real("mean", 0.0))
    return builder.reshape(builder.cast(scaled, dtype), shape)


@lowers("Bernoulli")
def _bernoulli(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    drawn = _uniform(call, x.shape, x.dtype)
    hit = builder.less(drawn, builder.cast(x, drawn.dtype))
    return builder.cast(hit, attribute_dtype(call, "dtype", x.dtype))


@lowers("Multinomial")
def _multinomial(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    samples, dtype = call.number("sample_size", 1), attribute_dtype(call, "dtype", _MULTINOMIAL[0])
    if x.rank != 2 or not x.shape[1] or samples < 0 or not is_floating(x.dtype):  # noqa: PLR2004
        raise ShapeError(f"{samples} samples of {x}, which is not a matrix of log-probabilities")
    if dtype not in _MULTINOMIAL:
        raise DTypeError(f"samples of {dtype.name}, not int32 or int64")
    batches, classes = x.shape
    drawn = _uniform(call, (batches, samples, classes), x.dtype)
    # Gumbel: the argmax of log p - log(-log u) is a sample of p
    noise = drawn
    for _ in range(2):
        noise = builder.neg(builder.log(noise))
    chances = builder.cast(builder.reshape(x, (batches, 1, classes)), drawn.dtype)
    best = builder.emit(Operator.ARG_MAX, builder.add(chances, noise), axis=2)
    return builder.cast(builder.reshape(best, (batches, samples)), dtype)
