"""Conversions of dtype: Cast, CastLike, BitCast."""

from typing import Final

from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import TEXT
from walle_stream.errors import DTypeError, LoweringError

_MODES: Final = ("up", "down", "nearest")
_CODES: Final = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
    "STRING": 8, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip
_NARROW_BITS: Final = {
    "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
    "float6_e2m3fn": 6, "float6_e3m2fn": 6,
}  # fmt: skip
"""Of those that take a byte an element in memory and fewer bits in their meaning."""


@lowers("Cast", kind=Kind.ATOMIC)
def _cast(call: Call) -> Result:
    return _converted(call, call.tensor(0), _target(call))


@lowers("CastLike", kind=Kind.ATOMIC)
def _cast_like(call: Call) -> Result:
    return _converted(call, call.tensor(0), call.tensor(1).dtype)


def _target(call: Call) -> DType:
    if not isinstance(call.attribute("to"), bytes):
        return element_type(call.number("to"))
    # opsets before 6 have the name of the type
    name = call.text("to").upper()
    if name not in _CODES:
        raise DTypeError(f"there is no element type {name!r}")
    return element_type(_CODES[name])


def _converted(call: Call, x: Tensor, dtype: DType) -> Tensor:
    mode = call.text("round_mode", "up")
    if mode not in _MODES:
        raise LoweringError(f"attribute 'round_mode' must be one of {_MODES}, not {mode!r}")
    saturate = bool(call.number("saturate", 1))
    if not dtype.name.startswith("float8"):
        return call.builder.cast(x, dtype)
    return call.builder.cast(x, dtype, saturate=saturate, mode=mode)


@lowers("BitCast", kind=Kind.ATOMIC)
def _bit_cast(call: Call) -> Result:
    x, dtype = call.tensor(0), _target(call)
    for each in (x.dtype, dtype):
        if each == TEXT:
            raise DTypeError("strings have no bits to cast")
    if _bits(x.dtype) != _bits(dtype):
        raise DTypeError(
            f"{x.dtype.name} has {_bits(x.dtype)} bits, {dtype.name} has {_bits(dtype)}"
        )
    return x if x.dtype == dtype else call.builder.unary(Operator.BITCAST, x, dtype=dtype)


def _bits(dtype: DType) -> int:
    return _NARROW_BITS.get(dtype.name, 8 * dtype.itemsize)
