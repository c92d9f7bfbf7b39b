"""Conversions of dtype: Cast, CastLike, BitCast."""

from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.errors import DTypeError, LoweringError

_MODES: Final = ("up", "down", "nearest")
_NARROW_BITS: Final = {
    "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4,
    "float6_e2m3fn": 6, "float6_e3m2fn": 6,
}  # fmt: skip
"""Of those that take a byte an element in memory and fewer bits in their meaning."""


def element_type(code: Any) -> DType:
    """Give the dtype that an attribute names.

    Args:
        code: A number of ``TensorProto.DataType``; opsets before 6 give the name.

    Returns:
        The dtype; ``object`` of strings.

    Raises:
        DTypeError: There is no such type.
    """
    # the package is there: attributes with its numbers come from its files alone
    from onnx import TensorProto  # noqa: PLC0415

    from walle_stream.engine.onnx.tensors import dtype_of  # noqa: PLC0415

    if isinstance(code, bytes):
        name = code.decode("utf-8", "replace").upper()
        if name not in TensorProto.DataType.keys():  # noqa: SIM118  # no mapping: an enum of protobuf
            raise DTypeError(f"there is no element type {name!r}")
        code = TensorProto.DataType.Value(name)
    if type(code) is not int:
        raise DTypeError(f"an element type must be a number, not {code!r}")
    return dtype_of(code)


@lowers("Cast", kind=Kind.ATOMIC)
def _cast(call: Call) -> Result:
    return _converted(call, call.tensor(0), element_type(call.attribute("to")))


@lowers("CastLike", kind=Kind.ATOMIC)
def _cast_like(call: Call) -> Result:
    return _converted(call, call.tensor(0), call.tensor(1).dtype)


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
    x, dtype = call.tensor(0), element_type(call.attribute("to"))
    for each in (x.dtype, dtype):
        if each == np.dtype(object):
            raise DTypeError("strings have no bits to cast")
    if _bits(x.dtype) != _bits(dtype):
        raise DTypeError(
            f"{x.dtype.name} has {_bits(x.dtype)} bits, {dtype.name} has {_bits(dtype)}"
        )
    return x if x.dtype == dtype else call.builder.unary(Operator.BITCAST, x, dtype=dtype)


def _bits(dtype: DType) -> int:
    return _NARROW_BITS.get(dtype.name, 8 * dtype.itemsize)
