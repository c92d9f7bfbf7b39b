"""Elementwise operators, most of them a single atomic on broadcast shapes, and conversions."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

import numpy as np

from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.lowering.precision import require_floating, require_numbers
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import BOOL, TEXT, is_integer
from walle_stream.errors import DTypeError, LoweringError

_UNARY: Final[Mapping[str, Operator]] = {
    "Abs": Operator.ABS, "Neg": Operator.NEG, "Sign": Operator.SIGN, "Not": Operator.NOT,
    "Ceil": Operator.CEIL, "Floor": Operator.FLOOR, "Round": Operator.ROUND,
    "Sqrt": Operator.SQRT, "Exp": Operator.EXP, "Log": Operator.LOG, "Sin": Operator.SIN,
    "Cos": Operator.COS, "Tan": Operator.TAN, "Asin": Operator.ASIN, "Acos": Operator.ACOS,
    "Atan": Operator.ATAN, "Sinh": Operator.SINH, "Cosh": Operator.COSH, "Tanh": Operator.TANH,
    "Asinh": Operator.ASINH, "Acosh": Operator.ACOSH, "Atanh": Operator.ATANH,
    "Erf": Operator.ERF, "IsNaN": Operator.IS_NAN, "BitwiseNot": Operator.NOT,
}  # fmt: skip

_BINARY: Final[Mapping[str, Operator]] = {
    "Add": Operator.ADD, "Sub": Operator.SUB, "Mul": Operator.MUL, "Div": Operator.DIV,
    "And": Operator.AND, "Or": Operator.OR, "Xor": Operator.XOR,
    "BitwiseAnd": Operator.AND, "BitwiseOr": Operator.OR, "BitwiseXor": Operator.XOR,
    "Equal": Operator.EQUAL, "Less": Operator.LESS, "LessOrEqual": Operator.LESS_EQUAL,
    "Greater": Operator.LESS, "GreaterOrEqual": Operator.LESS_EQUAL,
}  # fmt: skip

_VARIADIC: Final[Mapping[str, Operator]] = {
    "Max": Operator.MAXIMUM, "Min": Operator.MINIMUM, "Sum": Operator.ADD, "Mean": Operator.ADD,
}  # fmt: skip


@lowers(*_UNARY, kind=Kind.ATOMIC)
def _unary(call: Call) -> Result:
    return call.builder.unary(_UNARY[call.node.operator], call.tensor(0))


@lowers(*_BINARY, kind=Kind.ATOMIC)
def _binary(call: Call) -> Result:
    left, right = _legacy_spread(call)
    name = call.node.operator
    if name.startswith("Greater"):
        left, right = right, left
    return call.builder.binary(_BINARY[name], left, right)


def _legacy_spread(call: Call) -> tuple[Tensor, Tensor]:
    # before opset 7 an attribute gives the first axis of the second input; axes of size 1 follow it
    left, right = call.tensor(0), call.tensor(1)
    if call.version < 7 and call.number("broadcast", 0) and right.rank < left.rank:  # noqa: PLR2004
        axis = call.axis(left.rank) if "axis" in call.node.attributes else left.rank - right.rank
        behind = left.rank - axis - right.rank
        right = call.builder.reshape(right, (*right.shape, *(1,) * behind))
    return left, right


@lowers(*_VARIADIC, kind=Kind.ATOMIC)
def _variadic(call: Call) -> Result:
    tensors = call.tensors()
    operator = _VARIADIC[call.node.operator]
    total = reduce(lambda x, y: call.builder.binary(operator, x, y), tensors)
    return call.builder.div(total, len(tensors)) if call.node.operator == "Mean" else total


@lowers("Where", kind=Kind.ATOMIC)
def _where(call: Call) -> Result:
    return call.builder.select(call.tensor(0), call.tensor(1), call.tensor(2))


@lowers("Pow", kind=Kind.ATOMIC)
def _pow(call: Call) -> Result:
    base, exponent = _legacy_spread(call)
    builder = call.builder
    if base.dtype == exponent.dtype:
        return builder.pow(base, exponent)
    # the exponent may have another dtype: compute in the wider one, return the dtype of the base
    wide = np.result_type(base.dtype, exponent.dtype)
    result = builder.pow(builder.cast(base, wide), builder.cast(exponent, wide))
    return builder.cast(result, base.dtype)


@lowers("Mod", kind=Kind.ATOMIC)
def _mod(call: Call) -> Result:
    left, right = (require_numbers(call.tensor(number), f"input {number}") for number in (0, 1))
    fmod = call.number("fmod", 0)
    if fmod not in {0, 1}:
        raise LoweringError(f"attribute 'fmod' must be 0 or 1, not {fmod}")
    return call.builder.binary(Operator.FMOD if fmod else Operator.MOD, left, right)


@lowers("BitShift", kind=Kind.ATOMIC)
def _bit_shift(call: Call) -> Result:
    left, right = call.tensor(0), call.tensor(1)
    for operand in (left, right):
        if not is_integer(operand.dtype):
            raise DTypeError(f"bits of {operand.dtype.name} cannot be shifted, only of integers")
    directions = {"LEFT": Operator.SHIFT_LEFT, "RIGHT": Operator.SHIFT_RIGHT}
    return call.builder.binary(directions[call.choice("direction", directions)], left, right)


@lowers("IsInf")
def _is_inf(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    positive = bool(call.number("detect_positive", 1))
    negative = bool(call.number("detect_negative", 1))
    if not positive and not negative:
        return builder.broadcast(builder.constant(np.zeros((), BOOL)), x.shape)
    if positive and negative:
        return builder.equal(builder.abs(x), np.inf)
    return builder.equal(x, np.inf if positive else -np.inf)


@lowers("Reciprocal")
def _reciprocal(call: Call) -> Result:
    return call.builder.div(1, require_floating(call.tensor(0)))


_CODES: Final = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
    "STRING": 8, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip
_NARROW_BITS: Final = {
    "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
    "float6_e2m3fn": 6, "float6_e3m2fn": 6,
}  # fmt: skip
"""Number of bits of dtypes whose elements take a byte in memory but have fewer bits."""


@lowers("Cast", "CastLike", kind=Kind.ATOMIC)
def _cast(call: Call) -> Result:
    x = call.tensor(0)
    dtype = _target(call) if call.node.operator == "Cast" else call.tensor(1).dtype
    mode = call.choice("round_mode", ("up", "down", "nearest"), "up")
    saturate = bool(call.number("saturate", 1))
    if not dtype.name.startswith("float8"):
        return call.builder.cast(x, dtype)
    return call.builder.cast(x, dtype, saturate=saturate, mode=mode)


def _target(call: Call) -> DType:
    if not isinstance(call.attribute("to"), bytes):
        return element_type(call.number("to"))
    # before opset 6 the attribute is the name of the type
    name = call.text("to").upper()
    if name not in _CODES:
        raise DTypeError(f"there is no element type {name!r}")
    return element_type(_CODES[name])


@lowers("BitCast", kind=Kind.ATOMIC)
def _bit_cast(call: Call) -> Result:
    x, dtype = call.tensor(0), _target(call)
    if TEXT in {x.dtype, dtype}:
        raise DTypeError("strings have no bits to cast")
    if _bits(x.dtype) != _bits(dtype):
        raise DTypeError(
            f"{x.dtype.name} has {_bits(x.dtype)} bits, {dtype.name} has {_bits(dtype)}"
        )
    return x if x.dtype == dtype else call.builder.unary(Operator.BITCAST, x, dtype=dtype)


def _bits(dtype: DType) -> int:
    return _NARROW_BITS.get(dtype.name, 8 * dtype.itemsize)
