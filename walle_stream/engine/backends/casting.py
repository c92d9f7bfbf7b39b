"""Conversions between dtypes, the same for every backend that computes with numpy.

Rules of ONNX Cast: a float that does not fit becomes infinite, or with ``saturate`` the largest
value of a float8 dtype; integers wrap; text is parsed. Every result is rounded once, from the
value itself.
"""

from typing import Any, Final

import numpy as np

from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import BOOL, TEXT, is_foreign, is_integer

_MASK: Final = (1 << 64) - 1
_GREATEST: Final = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}
_EXPONENTS: Final = "float8_e8m0fnu"
"""Its values are nan and the powers of two from ``2 ** -127`` to ``2 ** 127``: no zero, no sign."""

_BIAS: Final = 127
_LAST: Final = 254
_NAN: Final = 255


def cast(x: Array, dtype: DType, saturate: bool = True, mode: str = "up") -> Array:
    """Convert each element from any dtype to another.

    With ``saturate`` a value beyond the range of a float8 becomes its largest value. ``mode``
    rounds float8e8m0 up, down or nearest.
    """
    if x.dtype == dtype:
        return x.copy()
    if dtype == TEXT:
        return _written(x)
    wide = _parsed(x, dtype) if x.dtype == TEXT else _widened(x)
    if dtype == BOOL:
        return np.asarray(wide != wide.dtype.type(0))
    if not is_foreign(dtype):
        return wide.astype(dtype)
    return _to_foreign(wide, dtype, saturate, mode)


def _to_foreign(x: Array, dtype: DType, saturate: bool, mode: str) -> Array:
    if dtype.name.startswith(("int", "uint")):
        return x.astype(np.int64).astype(dtype)
    if dtype.name == _EXPONENTS:
        return _rounded_exponents(x, saturate, mode).view(dtype)
    narrow = _narrowed(x)
    if saturate and dtype.name in _GREATEST:
        greatest = np.float32(_GREATEST[dtype.name])
        narrow = np.clip(narrow, -greatest, greatest)
    return narrow.astype(dtype)


def _widened(x: Array) -> Array:
    # dtypes of ml_dtypes convert to and from numpy's dtypes, but not to each other
    if not is_foreign(x.dtype):
        return x
    if x.dtype.name.startswith("int"):
        return x.astype(np.int8)
    return x.astype(np.uint8 if x.dtype.name.startswith("uint") else np.float32)


def _narrowed(x: Array) -> Array:
    # round to odd: the float32 rounds to any narrower float as ``x`` itself would
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:  # noqa: PLR2004  # bytes of an int64
        low = x.dtype.type(0x7FF)
        large = (x >= 1 << 53) if x.dtype.kind == "u" else np.abs(x) >= 1 << 53
        sticky = (x & ~low) | ((x & low) != 0).astype(x.dtype) * x.dtype.type(0x800)
        x = np.where(large, sticky, x)
    if x.dtype.kind in "iu" and x.dtype.itemsize > 2:  # noqa: PLR2004  # exact in float32
        x = x.astype(np.float64)
    if x.dtype != np.float64:
        return x.astype(np.float32)
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32) - (np.abs(back) > np.abs(x)).astype(np.int32)
    return (bits | (back != x)).view(np.float32)


def _rounded_exponents(x: Array, saturate: bool, mode: str) -> Array:
    wide = x.astype(np.float64)
    fraction, exponent = np.frexp(wide)
    code = exponent.astype(np.int64) - 1 + _BIAS
    if mode == "up":
        code += fraction > 0.5  # noqa: PLR2004  # frexp: from a half, which is a power of two
    elif mode == "nearest":
        code += fraction >= 0.75  # noqa: PLR2004  # frexp: in the middle of two powers, and above
    infinite, nothing = np.isinf(wide), wide == 0
    if saturate:
        code = np.where(infinite, _LAST, np.where(nothing, 0, np.clip(code, 0, _LAST)))
    else:
        code = np.where(infinite | nothing | (code < 0) | (code > _LAST), _NAN, code)
    return np.where(np.isnan(wide) | (wide < 0), _NAN, code).astype(np.uint8)


def _written(x: Array) -> Array:
    if x.dtype.kind == "b" or is_integer(x.dtype):
        flat: list[str] = [str(int(element)) for element in x.reshape(-1)]
    else:
        flat = [_written_float(element) for element in _widened(x).reshape(-1)]
    return np.array(flat, TEXT).reshape(x.shape)


def _written_float(x: Any) -> str:
    if np.isnan(x):
        return "NaN"
    if np.isinf(x):
        return "INF" if x > 0 else "-INF"
    return np.format_float_positional(x, unique=True, trim="-")


def _parsed(x: Array, dtype: DType) -> Array:
    flat = x.reshape(-1)
    if is_integer(dtype):
        whole = [_parsed_whole(element) & _MASK for element in flat]
        return np.array(whole, np.uint64).astype(np.int64).reshape(x.shape)
    known = {"true": 1.0, "false": 0.0} if dtype == BOOL else {}
    parsed = [
        known[key] if (key := text.strip().lower()) in known else float(text) for text in flat
    ]
    return np.array(parsed, np.float64).reshape(x.shape)


def _parsed_whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))
