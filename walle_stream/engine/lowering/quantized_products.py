"""Products of com.microsoft with quantised matrices."""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.fused_layers import MICROSOFT
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.products import matrix_of, multiply
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import FLOAT32, INT64
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_UINT8 = np.dtype(np.uint8)


@lowers("QGemm", domain=MICROSOFT)
def _gemm(call: Call) -> Result:
    builder = call.builder
    x, y = matrix_of(call, 0, "transA"), matrix_of(call, 3, "transB")
    sums = call.apply("MatMulInteger", x, y, call.optional(2), call.optional(5))
    if call.has(6):
        sums = builder.add(sums, builder.broadcast(call.tensor(6), sums.shape))
    scale = builder.mul(builder.mul(call.scalar(1), call.tensor(4)), call.real("alpha", 1.0))
    real = builder.mul(builder.cast(sums, FLOAT32), scale)
    if not call.has(7):
        return real
    zero = call.scalar(8) if call.has(8) else builder.constant(np.zeros((), x.dtype))
    return call.apply("QuantizeLinear", real, call.scalar(7), zero)


@lowers("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic(call: Call) -> Result:
    x, scale, zero = call.apply("DynamicQuantizeLinear", call.tensor(0), outputs=3)
    sums = call.apply("MatMulInteger", x, call.tensor(1), zero, call.optional(3))
    return _real(call, sums, (scale, call.tensor(2)), call.optional(4))


@lowers("MatMulIntegerToFloat", domain=MICROSOFT)
def _to_float(call: Call) -> Result:
    zeros = (call.optional(number) for number in (4, 5))
    sums = call.apply("MatMulInteger", call.tensor(0), call.tensor(1), *zeros)
    return _real(call, sums, (call.scalar(2), call.tensor(3)), call.optional(6))


def _real(call: Call, sums: Tensor, scales: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
    # what sums of products stand for, with a bias
    builder, scale = call.builder, call.builder.mul(*scales)
    result = builder.mul(builder.cast(sums, scale.dtype), scale)
    return result if bias is None else builder.add(result, builder.broadcast(bias, result.shape))


@lowers("MatMulNBits", domain=MICROSOFT)
def _narrow_bits(call: Call) -> Result:
    builder, x, packed = call.builder, require_floating(call.tensor(0)), call.tensor(1)
    inner, outer = call.number("K"), call.number("N")
    bits, block = call.number("bits", 4), call.number("block_size")
    if bits not in {2, 4, 8} or block < 1 or inner < 1 or outer < 1:
        raise LoweringError(
            f"{inner} rows of {bits} bits in blocks of {block}; 2, 4 and 8 are known"
        )
    if call.number("weight_prepacked", 0):
        raise LoweringError("attribute 'weight_prepacked' is not supported")
    blocks = -(-inner // block)
    if packed.size != outer * blocks * (block * bits // 8):
        raise ShapeError(f"weights of shape {list(packed.shape)} for {[outer, blocks]} blocks")
    dtype = widened(builder, x).dtype
    numbers = _unpacked(builder, packed, bits, (outer, blocks * block))
    weights = builder.cast(moves.slice_axis(builder, numbers, 1, 0, inner), dtype)
    scale = _by_row(call, builder.reshape(call.tensor(2), (outer, blocks)))
    zero = call.optional(3)
    if zero is None:
        weights = builder.sub(weights, float(1 << (bits - 1)))
    else:
        if zero.dtype == _UINT8:
            width = -(-blocks * bits // 8)
            zero = _unpacked(builder, zero, bits, (outer, width * 8 // bits))
            zero = moves.slice_axis(builder, zero, 1, 0, blocks)
        zero = builder.reshape(zero, (outer, blocks))
        weights = builder.sub(weights, builder.cast(_by_row(call, zero), dtype))
    weights = builder.mul(weights, builder.cast(scale, dtype))
    result = multiply(builder, builder.cast(x, dtype), moves.transpose(builder, weights, (1, 0)))
    if call.has(5):
        result = builder.add(result, builder.cast(call.tensor(5), dtype))
    return builder.cast(result, x.dtype)


def _unpacked(builder: Builder, x: Tensor, bits: int, shape: tuple[int, int]) -> Tensor:
    # the numbers of each byte, the lowest bits first
    if x.dtype != _UINT8:
        raise DTypeError(f"packed numbers are of uint8, not {x.dtype.name}")
    shifts = builder.constant(np.arange(0, 8, bits, dtype=np.uint8))
    shifted = builder.binary(Operator.SHIFT_RIGHT, builder.reshape(x, (*x.shape, 1)), shifts)
    return builder.reshape(builder.binary(Operator.AND, shifted, (1 << bits) - 1), shape)


def _by_row(call: Call, x: Tensor) -> Tensor:
    # one number for each weight: of its block, or of the group that an input names
    inner, block = call.number("K"), call.number("block_size")
    if call.has(4):
        return take(call.builder, x, call.builder.cast(call.tensor(4), INT64), 1)
    wide = call.builder.broadcast(moves.expand_axis(call.builder, x, 2), (*x.shape, block))
    whole = call.builder.reshape(wide, (x.shape[0], prod(wide.shape[1:])))
    return moves.slice_axis(call.builder, whole, 1, 0, inner)
