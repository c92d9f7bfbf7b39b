"""Products and convolutions of quantised tensors: the sums are of whole numbers, exact.

Whole numbers of 8 bits are multiplied as floats where these hold every sum: as
right as integers, and as fast as a product of floats is.
"""

from math import prod

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.convolution import convolve
from walle_stream.engine.lowering.precision import require_numbers
from walle_stream.engine.lowering.products import multiply
from walle_stream.engine.lowering.quantization import centred, quantized
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.lowering.windows import spatial_sizes, window_of
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import FLOAT32, FLOAT64, is_integer
from walle_stream.errors import DTypeError, ShapeError

_PRODUCT_BITS = 16
"""Of two numbers of 8 bits without their zero points, in magnitude."""

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
    factor = _requantized_by(
        builder,
        _column(builder, call.tensor(1), call.tensor(0)),
        call.tensor(4),
        call.tensor(6),
    )
    scaled = builder.mul(builder.cast(product, FLOAT32), factor)
    return quantized(builder, scaled, zero, zero.dtype)


def _requantized_by(builder: Builder, x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    # the factor from sums of products to an output, float32
    wide = [builder.cast(require_numbers(scale), FLOAT32) for scale in (x, w, y)]
    return builder.div(builder.mul(wide[0], wide[1]), wide[2])


def _summed_in(count: int) -> DType:
    # in which sums of products of 8-bit numbers are exact: a float where one holds them
    bits = max(count, 1).bit_length() + _PRODUCT_BITS
    if bits <= 24:  # noqa: PLR2004  # of the fraction of float32
        return FLOAT32
    return FLOAT64 if bits < 32 else _INT32  # noqa: PLR2004  # what an int32 holds


def _multiplied(call: Call, left: tuple[int, int], right: tuple[int, int]) -> Tensor:
    builder, a, b = (
        call.builder,
        require_numbers(call.tensor(left[0])),
        require_numbers(call.tensor(right[0])),
    )
    if not a.rank or not b.rank or a.shape[-1] != b.shape[-min(b.rank, _MATRIX)]:
        raise ShapeError(f"a product of shapes {list(a.shape)} and {list(b.shape)}")
    is_whole = is_integer(a.dtype) and is_integer(b.dtype)
    dtype = _summed_in(a.shape[-1]) if is_whole else FLOAT32
    zero_a, zero_b = call.optional(left[1]), call.optional(right[1])
    if zero_a is not None:
        zero_a = _column(builder, zero_a, a)
    a, b = centred(builder, a, zero_a, dtype), centred(builder, b, zero_b, dtype)
    return builder.cast(multiply(builder, a, b), _INT32 if is_whole else FLOAT32)


def _column(builder: Builder, x: Tensor, like: Tensor) -> Tensor:
    # one number a row of a matrix
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
    factor = _requantized_by(builder, x_scale, scale, y_scale)
    scaled = builder.mul(builder.cast(sums, FLOAT32), factor)
    return quantized(builder, scaled, zero, zero.dtype)


def _convolved(call: Call, left: tuple[int, int], right: tuple[int, int]) -> Tensor:
    builder, x, w = call.builder, call.tensor(left[0]), call.tensor(right[0])
    sizes = spatial_sizes(x)
    for operand in (x, w):
        _check_bytes(operand)
    if w.rank != x.rank:
        raise ShapeError(f"weights of shape {list(w.shape)} for shape {list(x.shape)}")
    window = window_of(call, sizes, w.shape[2:])
    dtype = _summed_in(prod(w.shape[1:]))
    zero_x = call.scalar(left[1]) if call.has(left[1]) else None
    zero_w = call.optional(right[1])
    if zero_w is not None:
        zero_w = _a_channel(builder, zero_w, w.shape[0], w.rank)
    whole_x, whole_w = centred(builder, x, zero_x, dtype), centred(builder, w, zero_w, dtype)
    sums = convolve(builder, whole_x, whole_w, window, call.number("group", 1))
    return builder.cast(sums, _INT32)


def _a_channel(builder: Builder, x: Tensor, channels: int, rank: int) -> Tensor:
    # of one number, or of one a channel: of ``rank`` axes, the first is of channels
    if x.size == 1:
        return builder.reshape(x, ())
    if x.shape != (channels,):
        raise ShapeError(f"{list(x.shape)} numbers for {channels} channels")
    return builder.reshape(x, (channels, *(1,) * (rank - 1)))
