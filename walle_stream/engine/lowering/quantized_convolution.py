"""Convolutions of quantised tensors: sums of whole numbers, as of quantised products."""

from math import prod

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.convolution import convolve
from walle_stream.engine.lowering.quantization import centred, quantized
from walle_stream.engine.lowering.quantized_products import (
    check_bytes,
    requantized_by,
    summed_in,
)
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.lowering.windows import spatial_sizes, window_of
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import FLOAT32
from walle_stream.errors import DTypeError, ShapeError

_INT32 = np.dtype(np.int32)


@lowers("ConvInteger")
def _conv_integer(call: Call) -> Result:
    return _convolved(call, (0, 2), (1, 3))


@lowers("QLinearConv")
def _linear_conv(call: Call) -> Result:
    builder, zero = call.builder, call.tensor(7)
    for number in (1, 2, 6, 7):
        if call.tensor(number).size != 1:
            shape = call.tensor(number).shape
            raise ShapeError(f"input {number} of shape {list(shape)} is no scalar")
    sums, bias = _convolved(call, (0, 2), (3, 5)), call.optional(8)
    if bias is not None:
        if bias.dtype != _INT32:
            raise DTypeError(f"the bias must be of int32, not {bias.dtype.name}")
        sums = builder.add(sums, _a_channel(builder, bias, sums.shape[1], sums.rank - 1))
    scale = _a_channel(builder, call.tensor(4), sums.shape[1], sums.rank - 1)
    x_scale, y_scale = (builder.reshape(call.tensor(each), ()) for each in (1, 6))
    factor = requantized_by(builder, x_scale, scale, y_scale)
    scaled = builder.mul(builder.cast(sums, FLOAT32), factor)
    return quantized(builder, scaled, builder.reshape(zero, ()), zero.dtype)


def _convolved(call: Call, left: tuple[int, int], right: tuple[int, int]) -> Tensor:
    builder, x, w = call.builder, call.tensor(left[0]), call.tensor(right[0])
    sizes = spatial_sizes(x)
    for each in (x, w):
        check_bytes(each)
    if w.rank != x.rank:
        raise ShapeError(f"weights of shape {list(w.shape)} for shape {list(x.shape)}")
    window = window_of(call, sizes, w.shape[2:])
    dtype = summed_in(prod(w.shape[1:]))
    zero_x, zero_w = call.optional(left[1]), call.optional(right[1])
    if zero_x is not None:
        if zero_x.size != 1:
            raise ShapeError(f"a zero point of shape {list(zero_x.shape)} is no scalar")
        zero_x = builder.reshape(zero_x, ())
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
