"""Quantisation: from floats to narrow numbers and back, one scale a tensor, axis or block."""

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.limits import integer_limits
from walle_stream.engine.lowering.precision import (
    element_type,
    require_floating,
    require_numbers,
    widened,
)
from walle_stream.engine.lowering.registry import Call, Result, axis_of, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import FLOAT32, is_floating, is_foreign, is_integer
from walle_stream.errors import DTypeError, ShapeError

_UINT8 = np.dtype(np.uint8)


@lowers("QuantizeLinear")
def _quantize(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    scale, zero = _spread_scale(call, x.shape)
    dtype = _quantized_type(call)
    code = call.number("precision", 0)
    precision = element_type(code) if code else _computed_in(call.tensor(1).dtype)
    if not is_floating(precision):
        raise DTypeError(f"a precision of {precision.name} does not divide")
    divided = builder.div(builder.cast(x, precision), builder.cast(scale, precision))
    return quantized(builder, divided, zero, dtype, saturate=bool(call.number("saturate", 1)))


@lowers("DequantizeLinear")
def _dequantize(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    scale, zero = _spread_scale(call, x.shape)
    code = call.number("output_dtype", 0)
    dtype = element_type(code) if code else call.tensor(1).dtype
    if dtype != _computed_in(dtype):
        raise DTypeError(f"{dtype.name} is no output: output_dtype must be of floating numbers")
    wide = np.result_type(dtype, FLOAT32) if not is_foreign(dtype) else FLOAT32
    real = builder.mul(centred(builder, x, zero, wide), builder.cast(scale, wide))
    return builder.cast(real, dtype)


@lowers("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    axes = range(x.rank)
    high = builder.maximum(builder.max(x, axes, keep=False), 0)
    low = builder.minimum(builder.reduce(Operator.REDUCE_MIN, x, axes, keep=False), 0)
    width = builder.sub(high, low)
    # where all is 0, any scale is right but 0
    scale = builder.select(builder.equal(width, 0), 1, builder.div(width, 255))
    begin = builder.div(builder.neg(low), scale)
    zero = builder.cast(builder.round(builder.clip(begin, 0, 255)), _UINT8)
    return quantized(builder, builder.div(x, scale), zero, _UINT8), scale, zero


def quantized(
    builder: Builder, x: Tensor, zero: Tensor | None, dtype: DType, *, saturate: bool = True
) -> Tensor:
    """Round, move and cut floats that are divided by their scale, to integers or narrow floats.

    ``zero`` stands for 0; None: 0 itself. For ``saturate`` see ``CAST``.
    """
    # not all zero points are numbers of a narrow float
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


def centred(builder: Builder, x: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """Take off the zero point, to a dtype wide enough for the difference; None: there is none.

    Raises:
        DTypeError: The zero point has another dtype than what is quantised.
    """
    if zero is not None and zero.dtype != x.dtype:
        raise DTypeError(f"a zero point of {zero.dtype.name} for {x.dtype.name}")
    if zero is None or _is_nothing(zero):
        return builder.cast(x, dtype)
    if x.dtype.itemsize >= FLOAT32.itemsize:
        return builder.cast(builder.sub(x, zero), dtype)
    return builder.sub(builder.cast(x, dtype), builder.cast(zero, dtype))


def _spread_scale(call: Call, shape: Shape) -> tuple[Tensor, Tensor | None]:
    # scale and zero point, which may be left out, so shaped that they spread to the input
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
    # one block may be longer than the axis
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
        raise DTypeError(f"nothing is quantised to {dtype.name}")
    return dtype


def _computed_in(dtype: DType) -> DType:
    # a scale of int32 or float8e8m0 says nothing about precision
    return dtype if is_floating(dtype) and dtype.itemsize > 1 else FLOAT32


def _is_nothing(zero: Tensor) -> bool:
    return zero.data is not None and not zero.data.astype(np.float32).any()
