"""Layers of com.microsoft between 8-bit numbers, each with a scale and a zero point.

A layer computes in float32 what its operands stand for. A function of single elements is a table
of its 256 results.
"""

from collections.abc import Callable

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.channels import channels_first, channels_last
from walle_stream.engine.lowering.fused_layers import MICROSOFT
from walle_stream.engine.lowering.registry import Call, Result, axis_of, lowers
from walle_stream.engine.lowering.windows import spatial_sizes
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import INT64
from walle_stream.errors import DTypeError, LoweringError

_UINT8 = np.dtype(np.uint8)
_PART = 3
"""Number of inputs that are one operand: its elements, their scale and their zero point."""


def _real(call: Call, number: int, x: Tensor | None = None) -> Tensor:
    # what the operand at an input stands for; or x, which has its scale and zero point
    result: Tensor = call.apply(
        "DequantizeLinear", _narrow(call, number) if x is None else x, call.scalar(number + 1),
        call.scalar(number + 2) if call.has(number + 2) else None,
    )  # fmt: skip
    return result


def _narrow(call: Call, number: int) -> Tensor:
    x = call.tensor(number)
    if x.dtype.kind not in "iu" or x.dtype.itemsize != 1:
        raise DTypeError(f"input {number} must be integers of 8 bits, not {x.dtype.name}")
    return x


def _quantized(call: Call, x: Tensor, number: int, like: Tensor) -> Tensor:
    # in the dtype of another, with the scale at an input and the zero point at the next one
    zero = call.builder.constant(np.zeros((), like.dtype))
    if call.has(number + 1):
        zero = call.scalar(number + 1)
    result: Tensor = call.apply("QuantizeLinear", x, call.scalar(number), zero)
    return result


def _tabled(call: Call, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    builder = call.builder
    table = function(builder.constant(np.arange(256, dtype=np.uint8).view(x.dtype)))
    bits = x if x.dtype == _UINT8 else builder.unary(Operator.BITCAST, x, dtype=_UINT8)
    return take(builder, table, builder.cast(bits, INT64))


@lowers("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _binary(call: Call) -> Result:
    operator = Operator.ADD if call.node.operator == "QLinearAdd" else Operator.MUL
    result = call.builder.binary(operator, _real(call, 0), _real(call, _PART))
    return _quantized(call, result, 2 * _PART, call.tensor(0))


@lowers("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def _unary(call: Call) -> Result:
    operator, x = call.node.operator.removeprefix("QLinear"), _narrow(call, 0)
    kept = call.kept("alpha")

    def function(table: Tensor) -> Tensor:
        return _quantized(call, call.apply(operator, _real(call, 0, table), **kept), _PART, x)

    return _tabled(call, x, function)


def _rescaled(call: Call, number: int, scale: int, like: Tensor) -> Tensor:
    # an operand with the scale and the zero point of the output, which begin at another input
    x = _narrow(call, number)
    return _tabled(call, x, lambda table: _quantized(call, _real(call, number, table), scale, like))


@lowers("QLinearWhere", domain=MICROSOFT)
def _where(call: Call) -> Result:
    like, last = call.tensor(1), 1 + 2 * _PART
    x, y = (_rescaled(call, number, last, like) for number in (1, 1 + _PART))
    return call.builder.select(call.tensor(0), x, y)


@lowers("QLinearConcat", domain=MICROSOFT)
def _concat(call: Call) -> Result:
    numbers = range(2, len(call.inputs), _PART)
    if not numbers or len(call.inputs) % _PART != 2:  # noqa: PLR2004  # scale and zero point come first
        raise LoweringError(f"{len(call.inputs)} inputs are not 2 and 3 for each operand")
    parts = [_rescaled(call, number, 0, call.tensor(1)) for number in numbers]
    return moves.concat(call.builder, parts, axis_of(call.number("axis"), parts[0].rank))


@lowers("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MICROSOFT)
def _pool(call: Call) -> Result:
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    operator = call.node.operator.removeprefix("QLinear")
    kept = call.kept(*names) if operator == "AveragePool" else {}
    x, is_last = _real(call, 0), call.number("channels_last", 0)
    spatial_sizes(x)
    result = call.apply(operator, channels_first(call.builder, x) if is_last else x, **kept)
    result = _quantized(call, result, _PART, call.tensor(0))
    return channels_last(call.builder, result) if is_last else result


@lowers("QLinearSoftmax", domain=MICROSOFT)
def _softmax(call: Call) -> Result:
    shares = call.apply("Softmax", _real(call, 0), version=call.number("opset"),
                        axis=call.number("axis", -1))  # fmt: skip
    return _quantized(call, shares, _PART, call.tensor(0))
