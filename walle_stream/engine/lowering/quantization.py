"""Quantisation: from floats to narrow numbers and back, and products of quantised tensors.

There is one scale per tensor, axis or block. 8-bit integers are multiplied as floats if the float
dtype holds every sum exactly, which is as accurate as integers and as fast as floats.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.convolution import convolve
from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.lowering.limits import integer_limits
from walle_stream.engine.lowering.precision import require_floating, require_numbers, widened
from walle_stream.engine.lowering.products import multiply
from walle_stream.engine.lowering.registry import Call, Result, axis_of, lowers
from walle_stream.engine.lowering.windows import spatial_sizes, window_of
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import FLOAT32, FLOAT64, is_floating, is_foreign, is_integer
from walle_stream.errors import DTypeError, ShapeError

_UINT8 = np.dtype(np.uint8)


@lowers("QuantizeLinear", domain="com.microsoft")
@lowers("QuantizeLinear")
def _quantize(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    scale, zero = _spread_scale(call, x.shape)
    dtype = _quantized_type(call)
    code = call.number("precision", 0)
    precision = element_type(code) if code else _computed_in(call.tensor(1).dtype)
    if not is_floating(precision):
        raise DTypeError(f"a precision of {precision.name} is not a floating-point one")
    divided = builder.div(builder.cast(x, precision), builder.cast(scale, precision))
    return _quantized(builder, divided, zero, dtype, saturate=bool(call.number("saturate", 1)))


@lowers("DequantizeLinear", domain="com.microsoft")
@lowers("DequantizeLinear")
def _dequantize(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    scale, zero = _spread_scale(call, x.shape)
    code = call.number("output_dtype", 0)
    dtype = element_type(code) if code else call.tensor(1).dtype
    if dtype != _computed_in(dtype):
        raise DTypeError(f"output_dtype must be a floating-point type, not {dtype.name}")
    wide = np.result_type(dtype, FLOAT32) if not is_foreign(dtype) else FLOAT32
    real = builder.mul(_centred(builder, x, zero, wide), builder.cast(scale, wide))
    return builder.cast(real, dtype)


@lowers("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    scale, begin = (builder.reshape(x, ()) for x in _byte_range(builder, x, range(x.rank)))
    zero = builder.cast(begin, _UINT8)
    return _quantized(builder, builder.div(x, scale), zero, _UINT8), scale, zero


def _byte_range(builder: Builder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    # the scale and the zero point of 8 bits that hold 0 and all elements along the axes
    high = builder.maximum(builder.max(x, axes), 0)
    low = builder.minimum(builder.reduce(Operator.REDUCE_MIN, x, axes), 0)
    width = builder.sub(high, low)
    # if all elements are 0, any scale but 0 is right
    scale = builder.select(builder.equal(width, 0), 1, builder.div(width, 255))
    begin = builder.div(builder.neg(low), scale)
    return scale, builder.round(builder.clip(begin, 0, 255))


def rounded_to_bytes(builder: Builder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return floats in whole steps of 8 bits, and the step of all elements along the axes."""
    scale, zero = _byte_range(builder, x, axes)
    steps = builder.add(builder.round(builder.div(x, scale)), zero)
    return builder.sub(builder.clip(steps, 0, 255), zero), scale


def _quantized(
    builder: Builder, x: Tensor, zero: Tensor | None, dtype: DType, *, saturate: bool = True
) -> Tensor:
    # rounds floats that were divided by their scale, adds the zero point, and clips
    # compute in a wide dtype: a narrow float cannot hold every zero point
    wide = widened(builder, x)
    if is_integer(dtype):
        wide = builder.round(wide)
    if zero is not None and not _is_nothing(zero):
        wide = builder.add(wide, builder.cast(zero, wide.dtype))
    if is_integer(dtype):
        least, most = integer_limits(dtype)
        wide = builder.clip(wide, least, most)
    elif dtype.name.startswith("float8"):
        return builder.cast(wide, dtype, saturate=saturate)
    return builder.cast(wide, dtype)


def _centred(builder: Builder, x: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    # subtracts the zero point, in a dtype wide enough for the difference
    if zero is not None and zero.dtype != x.dtype:
        raise DTypeError(f"a zero point of {zero.dtype.name} for {x.dtype.name}")
    if zero is None or _is_nothing(zero):
        return builder.cast(x, dtype)
    if x.dtype.itemsize >= FLOAT32.itemsize:
        return builder.cast(builder.sub(x, zero), dtype)
    return builder.sub(builder.cast(x, dtype), builder.cast(zero, dtype))


def _spread_scale(call: Call, shape: Shape) -> tuple[Tensor, Tensor | None]:
    # the scale and the optional zero point, reshaped to broadcast to the input
    scale, zero = require_numbers(call.tensor(1), "the scale"), call.optional(2)
    if zero is not None and zero.shape != scale.shape and not zero.size == scale.size == 1:
        raise ShapeError(f"a zero point of {list(zero.shape)} for a scale of {list(scale.shape)}")
    block = call.number("block_size", 0)
    if block < 0:
        raise ShapeError(f"blocks of {block} elements")
    axis = 0
    if scale.size != 1:
        axis = axis_of(call.number("axis", 1), len(shape))
    spread = _spread(call.builder, scale, shape, axis, block)
    return spread, None if zero is None else _spread(call.builder, zero, shape, axis, block)


def _spread(builder: Builder, x: Tensor, shape: Shape, axis: int, block: int) -> Tensor:
    if x.size == 1:
        return builder.reshape(x, ())
    size = shape[axis]
    if not block:
        if x.shape != (size,):
            raise ShapeError(f"a scale of {list(x.shape)} for axis {axis} of {list(shape)}")
        return builder.reshape(x, (size, *(1,) * (len(shape) - axis - 1)))
    count = -(-size // block)
    if x.shape != (*shape[:axis], count, *shape[axis + 1 :]):
        raise ShapeError(f"a scale of {list(x.shape)} for blocks of {block} of {list(shape)}")
    before, behind = shape[:axis], shape[axis + 1 :]
    # a single block may be longer than the axis
    length = min(block, size)
    split = builder.reshape(x, (*before, count, 1, *behind))
    whole = builder.broadcast(split, (*before, count, length, *behind))
    joined = builder.reshape(whole, (*before, count * length, *behind))
    return moves.slice_axis(builder, joined, axis, 0, size)


def _quantized_type(call: Call) -> DType:
    zero, code = call.optional(2), call.number("output_dtype", 0)
    if zero is None:
        dtype = element_type(code) if code else _UINT8
    else:
        dtype = zero.dtype
        if code and element_type(code) != dtype:
            raise DTypeError(f"output_dtype is not the zero point's {dtype.name}")
    is_narrow_float = is_floating(dtype) and dtype.itemsize == 1
    if not (is_narrow_float or (is_integer(dtype) and dtype.itemsize <= 2)):  # noqa: PLR2004
        raise DTypeError(f"quantisation to {dtype.name} is not supported")
    return dtype


def _computed_in(dtype: DType) -> DType:
    # a scale of int32 or float8e8m0 does not determine the precision
    return dtype if is_floating(dtype) and dtype.itemsize > 1 else FLOAT32


def _is_nothing(zero: Tensor) -> bool:
    return zero.data is not None and not zero.data.astype(np.float32).any()


_BYTE_MAX = 255
"""The largest magnitude of an 8-bit number without its zero point."""

_MATRIX = 2


@lowers("MatMulInteger")
def _matmul_integer(call: Call) -> Result:
    for number in (0, 1):
        _check_bytes(call.tensor(number))
    return _multiplied(call, (0, 2), (1, 3))


@lowers("QLinearMatMul")
def _linear_matmul(call: Call) -> Result:
    builder, zero = call.builder, call.tensor(7)
    product = _multiplied(call, (0, 2), (3, 5))
    scales = _column(builder, call.tensor(1), call.tensor(0)), call.tensor(4), call.tensor(6)
    return _requantized(builder, product, scales, zero)


def _requantized(
    builder: Builder, sums: Tensor, scales: tuple[Tensor, Tensor, Tensor], zero: Tensor
) -> Tensor:
    # converts sums of products to an output, with the scales of both factors and of the output
    x, w, y = (builder.cast(require_numbers(scale), FLOAT32) for scale in scales)
    factor = builder.div(builder.mul(x, w), y)
    scaled = builder.mul(builder.cast(sums, FLOAT32), factor)
    return _quantized(builder, scaled, zero, zero.dtype)


def _summed_in(builder: Builder, w: Tensor, zero: Tensor | None, axes: Sequence[int]) -> DType:
    # a dtype for exact sums of products of 8-bit numbers and weights: a float if one holds them;
    # known weights give smaller bounds than all that there may be
    most = _BYTE_MAX * prod(w.shape[axis] for axis in axes)
    if w.data is not None and (zero is None or zero.data is not None):
        whole = _centred(builder, w, zero, _INT32).data
        if whole is not None:
            most = int(np.abs(whole).sum(axis=tuple(axes), dtype=np.int64).max(initial=0))
    bits = (most * _BYTE_MAX).bit_length()
    if bits <= 24:  # noqa: PLR2004  # bits of the significand of float32
        return FLOAT32
    return FLOAT64 if bits < 32 else _INT32  # noqa: PLR2004  # bits of an int32


def _multiplied(call: Call, left: tuple[int, int], right: tuple[int, int]) -> Tensor:
    builder = call.builder
    a, b = (require_numbers(call.tensor(number)) for number, _ in (left, right))
    if not a.rank or not b.rank or a.shape[-1] != b.shape[-min(b.rank, _MATRIX)]:
        raise ShapeError(f"a product of shapes {list(a.shape)} and {list(b.shape)}")
    is_whole = is_integer(a.dtype) and is_integer(b.dtype)
    zero_a, zero_b = call.optional(left[1]), call.optional(right[1])
    dtype = _summed_in(builder, b, zero_b, [-min(b.rank, _MATRIX)]) if is_whole else FLOAT32
    if zero_a is not None:
        zero_a = _column(builder, zero_a, a)
    a, b = _centred(builder, a, zero_a, dtype), _centred(builder, b, zero_b, dtype)
    return builder.cast(multiply(builder, a, b), _INT32 if is_whole else FLOAT32)


def _column(builder: Builder, x: Tensor, like: Tensor) -> Tensor:
    # one number per row of a matrix
    if x.rank == 1 and x.size > 1 and like.rank >= _MATRIX:
        return builder.reshape(x, (x.size, 1))
    return builder.reshape(x, ()) if x.size == 1 else x


def _check_bytes(x: Tensor) -> None:
    if not is_integer(x.dtype) or x.dtype.itemsize != 1:
        raise DTypeError(f"integers of 8 bits are expected, not {x.dtype.name}")


_INT32 = np.dtype(np.int32)


@lowers("ConvInteger")
def _conv_integer(call: Call) -> Result:
    return _convolved(call, (0, 2), (1, 3))


@lowers("QLinearConv")
def _linear_conv(call: Call) -> Result:
    builder = call.builder
    x_scale, _, y_scale, zero = (call.scalar(number) for number in (1, 2, 6, 7))
    sums, bias = _convolved(call, (0, 2), (3, 5)), call.optional(8)
    if bias is not None:
        if bias.dtype != _INT32:
            raise DTypeError(f"the bias must be of int32, not {bias.dtype.name}")
        sums = builder.add(sums, _a_channel(builder, bias, sums.shape[1], sums.rank - 1))
    scale = _a_channel(builder, call.tensor(4), sums.shape[1], sums.rank - 1)
    return _requantized(builder, sums, (x_scale, scale, y_scale), zero)


def _convolved(call: Call, left: tuple[int, int], right: tuple[int, int]) -> Tensor:
    builder, x, w = call.builder, call.tensor(left[0]), call.tensor(right[0])
    sizes = spatial_sizes(x)
    for operand in (x, w):
        _check_bytes(operand)
    if w.rank != x.rank:
        raise ShapeError(f"weights of shape {list(w.shape)} for shape {list(x.shape)}")
    window = window_of(call, sizes, w.shape[2:])
    zero_x = call.scalar(left[1]) if call.has(left[1]) else None
    zero_w = call.optional(right[1])
    if zero_w is not None:
        zero_w = _a_channel(builder, zero_w, w.shape[0], w.rank)
    dtype = _summed_in(builder, w, zero_w, range(1, w.rank))
    whole_x, whole_w = _centred(builder, x, zero_x, dtype), _centred(builder, w, zero_w, dtype)
    sums = convolve(builder, whole_x, whole_w, window, call.number("group", 1))
    return builder.cast(sums, _INT32)


def _a_channel(builder: Builder, x: Tensor, channels: int, rank: int) -> Tensor:
    # a single number becomes a scalar; one per channel gets ``rank`` axes, channels first
    if x.size == 1:
        return builder.reshape(x, ())
    if x.shape != (channels,):
        raise ShapeError(f"{list(x.shape)} numbers for {channels} channels")
    return builder.reshape(x, (channels, *(1,) * (rank - 1)))
