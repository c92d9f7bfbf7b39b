"""Element types that attributes name."""

from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering.registry import Call
from walle_stream.engine.program import DType
from walle_stream.errors import DTypeError

_NATIVE: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "object", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128",
}  # fmt: skip
_NARROW: Final = {
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2",
    20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu",
    25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip


def element_type(code: int) -> DType:
    """Return the dtype of a ``TensorProto.DataType``, from numpy or ``ml_dtypes``.

    The dtype of text is ``object``.

    Raises:
        DTypeError: The type does not exist, or this engine does not support it.
    """
    if code in _NATIVE:
        return np.dtype(_NATIVE[code])
    if code not in _NARROW:
        raise DTypeError(f"there is no element type {code}")
    try:
        import ml_dtypes  # noqa: PLC0415  # only for dtypes that numpy lacks
    except ImportError as error:
        raise DTypeError(f"dtype {_NARROW[code]} needs the package ml_dtypes") from error
    value: Any = getattr(ml_dtypes, _NARROW[code], None)
    if value is None:
        raise DTypeError(f"this ml_dtypes has no {_NARROW[code]}")
    return np.dtype(value)


def attribute_dtype(call: Call, name: str, default: DType) -> DType:
    """Return the dtype that an attribute names."""
    return default if call.attribute(name) is None else element_type(call.number(name))
