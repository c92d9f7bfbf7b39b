"""Normalizations by the maximum, by moments and by norms.

Narrow floats are computed in float32 and rounded once, at the end, except in Softmax.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.pooling import doubled, lp_norm
from walle_stream.engine.lowering.precision import float_dtype, wide_dtype, widened
from walle_stream.engine.lowering.registry import Call, Result, axis_of, lowers
from walle_stream.engine.lowering.windows import placed
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Shape
from walle_stream.errors import LoweringError, ShapeError

_FLOAT16_MAX: Final = 65504


def softmax(builder: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the softmax of floating-point numbers over axes, in the dtype of ``x``."""
    # float16 is rounded after each step, as in ONNX's function body, since its tests are strict;
    # except for rows whose sum could exceed float16
    is_narrow = x.dtype == np.float16 and prod(x.shape[axis] for axis in axes) < _FLOAT16_MAX
    wide = x if is_narrow else widened(builder, x)
    powers = builder.exp(_below_greatest(builder, wide, axes))
    return builder.cast(builder.div(powers, builder.sum(powers, axes)), x.dtype)


def log_softmax(builder: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the logarithm of ``softmax``, even of results that are too small for the dtype."""
    wide = _below_greatest(builder, widened(builder, x), axes)
    total = builder.sum(builder.exp(wide), axes)
    return builder.cast(builder.sub(wide, builder.log(total)), x.dtype)


def _below_greatest(builder: Builder, x: Tensor, axes: Sequence[int]) -> Tensor:
    return builder.sub(x, builder.max(x, axes))


@lowers("Softmax", "LogSoftmax")
def _softmax(call: Call) -> Result:
    x = call.tensor(0)
    if call.version < 13:  # noqa: PLR2004  # the opset that made it apply to one axis
        axes = range(call.axis(x.rank, 1), x.rank)
    else:
        axis = call.axis(x.rank, -1)
        axes = range(axis, axis + 1)
    function = softmax if call.node.operator == "Softmax" else log_softmax
    return function(call.builder, x, axes)


def _centred(builder: Builder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    mean = builder.mean(x, axes)
    centred = builder.sub(x, mean)
    return centred, mean, builder.mean(builder.mul(centred, centred), axes)


def _inverse_root(builder: Builder, x: Tensor, epsilon: float) -> Tensor:
    return builder.div(1.0, builder.sqrt(builder.add(x, epsilon)))


def _channels(call: Call, number: int, dtype: DType, shape: Sequence[int]) -> Tensor:
    builder, x = call.builder, call.tensor(number)
    if x.size != prod(shape):
        raise ShapeError(f"input {number} of shape {list(x.shape)} is not of {list(shape)}")
    return builder.cast(builder.reshape(x, shape), dtype)


def _has_channels(x: Tensor) -> None:
    if x.rank < 2:  # noqa: PLR2004  # batch and channels
        raise ShapeError(f"shape {list(x.shape)} has no axis of channels")


@lowers("BatchNormalization")
def _batch(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    dtype = wide_dtype(*(call.tensor(number).dtype for number in range(5)))
    wide, epsilon = builder.cast(x, dtype), call.real("epsilon", 1e-5)
    if not x.rank:
        raise ShapeError("a scalar has no batch")
    # a single axis is the batch, with one channel
    features = x.shape[1:] if x.rank > 1 else (1,)
    if call.number("spatial", 1):
        features = (features[0], *(1,) * (len(features) - 1))
    shape = (1, *features) if x.rank > 1 else features
    scale, bias, mean, variance = (_channels(call, number, dtype, shape) for number in range(1, 5))
    if not _is_training(call):
        factor = builder.mul(scale, _inverse_root(builder, variance, epsilon))
        offset = builder.sub(bias, builder.mul(mean, factor))
        return builder.cast(builder.add(builder.mul(wide, factor), offset), x.dtype)
    axes = (0, *range(2, x.rank)) if call.number("spatial", 1) else (0,)
    centred, current_mean, current_variance = _centred(builder, wide, axes)
    factor = builder.mul(scale, _inverse_root(builder, current_variance, epsilon))
    result = builder.add(builder.mul(centred, factor), bias)
    momentum = call.real("momentum", 0.9)
    results = [builder.cast(result, x.dtype)]
    for number, old, new in ((3, mean, current_mean), (4, variance, current_variance)):
        moved = builder.add(builder.mul(old, momentum), builder.mul(new, 1 - momentum))
        results.append(_as_given(call, moved, number))
    if call.version < 14:  # noqa: PLR2004  # the opset that dropped the outputs for gradients
        results += [_as_given(call, current_mean, 3), _as_given(call, current_variance, 4)]
    return tuple(results)


def _as_given(call: Call, x: Tensor, number: int) -> Tensor:
    like = call.tensor(number)
    return call.builder.cast(call.builder.reshape(x, like.shape), like.dtype)


def _is_training(call: Call) -> bool:
    if call.version < 7:  # noqa: PLR2004  # older opsets signal training in other ways
        return not call.number("is_test", 0)
    if call.version < 14:  # noqa: PLR2004
        return any(call.wants(number) for number in range(1, 5))
    return bool(call.number("training_mode", 0))


@lowers("InstanceNormalization")
def _instance(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    _has_channels(x)
    wide = widened(builder, x)
    shape = (1, x.shape[1], *(1,) * (x.rank - 2))
    return builder.cast(_by_channel(call, wide, shape, range(2, x.rank)), x.dtype)


def _by_channel(call: Call, x: Tensor, shape: Shape, axes: Sequence[int]) -> Tensor:
    # scale and bias, inputs 1 and 2, get a shape that broadcasts to the input's
    builder = call.builder
    scale, bias = (_channels(call, number, x.dtype, shape) for number in (1, 2))
    centred, _, variance = _centred(builder, x, axes)
    inverse = _inverse_root(builder, variance, call.real("epsilon", 1e-5))
    return builder.add(builder.mul(centred, builder.mul(inverse, scale)), bias)


@lowers("GroupNormalization")
def _group(call: Call) -> Result:
    builder, x, groups = call.builder, call.tensor(0), call.number("num_groups")
    _has_channels(x)
    channels = x.shape[1]
    if groups < 1 or channels % groups:
        raise ShapeError(f"{channels} channels in {groups} groups")
    stash = float_dtype(call.number("stash_type", 1), "stash_type")
    wide = builder.cast(x, wide_dtype(x.dtype, stash))
    width = channels // groups
    # opset 18 has one scale per group, later opsets have one per channel
    shape = (1, groups, 1 if call.version < 21 else width, 1)  # noqa: PLR2004
    grouped = builder.reshape(wide, (x.shape[0], groups, width, prod(x.shape[2:])))
    result = _by_channel(call, grouped, shape, (2, 3))
    return builder.cast(builder.reshape(result, x.shape), x.dtype)


@lowers("LayerNormalization")
def _layer(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    axes = range(call.axis(x.rank, -1), x.rank)
    stash = float_dtype(call.number("stash_type", 1), "stash_type")
    wide = builder.cast(x, wide_dtype(x.dtype, stash))
    centred, mean, variance = _centred(builder, wide, axes)
    inverse = _inverse_root(builder, variance, call.real("epsilon", 1e-5))
    result = _spread_mul(call, builder.mul(centred, inverse), call.tensor(1))
    if call.has(2):
        bias = builder.broadcast(call.tensor(2), x.shape)
        result = builder.add(result, builder.cast(bias, result.dtype))
    return builder.cast(result, x.dtype), builder.cast(mean, stash), builder.cast(inverse, stash)


def _spread_mul(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    builder = call.builder
    return builder.mul(x, builder.broadcast(builder.cast(scale, x.dtype), x.shape))


@lowers("SimplifiedLayerNormalization", domain="com.microsoft")
@lowers("RMSNormalization", "SimplifiedLayerNormalization")
def _rms(call: Call) -> Result:
    builder, x, scale = call.builder, call.tensor(0), call.tensor(1)
    axes = range(call.axis(x.rank, -1), x.rank)
    stash = float_dtype(call.number("stash_type", 1), "stash_type")
    wide = builder.cast(x, wide_dtype(x.dtype, scale.dtype, stash))
    square = builder.mean(builder.mul(wide, wide), axes)
    inverse = _inverse_root(builder, square, call.real("epsilon", 1e-5))
    result = _spread_mul(call, builder.mul(wide, inverse), scale)
    return builder.cast(result, scale.dtype), builder.cast(inverse, stash)


@lowers("LpNormalization")
def _lp(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    axes, power = (call.axis(x.rank, -1),), call.number("p", 2)
    wide = widened(builder, x)
    if power not in {1, 2}:
        raise LoweringError(f"a norm of order {power}; 1 and 2 are known")
    norm = lp_norm(builder, wide, power, lambda powers: builder.sum(powers, axes))
    # zeros stay zeros
    norm = builder.select(builder.equal(norm, 0.0), 1.0, norm)
    return builder.cast(builder.div(wide, norm), x.dtype)


@lowers("MeanVarianceNormalization")
def _mean_variance(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    named = call.list("axes")
    axes = sorted({axis_of(axis, x.rank) for axis in ((0, 2, 3) if named is None else named)})
    centred, _, variance = _centred(builder, widened(builder, x), axes)
    deviation = builder.add(builder.sqrt(variance), 1e-9)
    return builder.cast(builder.div(centred, deviation), x.dtype)


@lowers("LRN")
def _local_response(call: Call) -> Result:
    builder, x, size = call.builder, call.tensor(0), call.number("size")
    _has_channels(x)
    if size < 1:
        raise ShapeError(f"a window of {size} channels")
    wide = widened(builder, x)
    channels = x.shape[1]
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    ends = [[width if axis == 1 else 0 for axis in range(x.rank)] for width in (before, after)]
    squares = moves.pad(builder, builder.mul(wide, wide), *ends)
    window = placed(squares.shape[1:2], (before + after + 1,), (1,), (1,), (0, 0))
    total = doubled(builder, Operator.ADD, squares, window, 0)
    weighted = builder.mul(total, call.real("alpha", 1e-4) / size)
    base = builder.add(weighted, call.real("bias", 1.0))
    divisor = builder.pow(base, call.real("beta", 0.75))
    return builder.cast(builder.div(wide, divisor), x.dtype)
