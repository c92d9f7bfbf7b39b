"""Conversions between dtypes, and between numbers and text."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import copysign, frexp, isfinite, isinf, isnan, nan
from typing import Any, Final

import numpy as np

from walle_stream.engine.program import DType
from walle_stream.engine.rules import BOOL, is_floating, is_foreign, is_integer
from walle_stream.testing.toy.elements import Elements, Value, fitted, read, written

_TEXT: Final = np.dtype(object)
_DOUBLE: Final = np.dtype(np.float64)
_SINGLE: Final = np.dtype(np.float32)
_GREATEST: Final = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}
"""Greatest elements of the dtypes that support ``saturate``."""

_DIGITS_MAX: Final = 17
"""Number of digits that distinguish a float64 from its neighbours."""

_EXPONENT_MAX: Final = 127
_KEPT_BITS: Final = 52


def cast(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Convert elements; see ``Operator.CAST``.

    Args:
        inputs: A single value.
        parameters: ``dtype`` and the parameters of rounding.
    """
    (x,) = inputs
    dtype = parameters["dtype"]
    if dtype == x.dtype:
        return x
    if dtype == _TEXT:
        return Value(x.shape, dtype, [_text_of(each, x.dtype) for each in x.elements])
    given = x.elements
    if x.dtype == _TEXT:
        given = [_parsed(each, dtype) for each in given]
    if dtype == BOOL:
        return Value(x.shape, dtype, [bool(each) for each in given])
    if is_integer(dtype):
        return Value(x.shape, dtype, fitted(map(_whole, given), dtype))
    if dtype == _DOUBLE:
        return Value(x.shape, dtype, [float(each) for each in given])
    exact = [each if isinstance(each, float) else _as_float(int(each)) for each in given]
    return Value(x.shape, dtype, _narrowed(exact, **parameters))


def bitcast(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Reinterpret bits as another dtype; see ``Operator.BITCAST``."""
    return read(written(inputs[0]).view(parameters["dtype"]))


def _as_float(number: int) -> float:
    # a float that rounds to narrower floats like the number: lost bits remain as an odd bit
    lost = abs(number).bit_length() - _KEPT_BITS
    if lost < 2:  # noqa: PLR2004  # 53 bits are exact
        return float(number)
    high = abs(number) >> lost
    exact = high << lost == abs(number)
    return copysign(float((high if exact else high | 1) << lost), number)


def _whole(number: Any) -> int:
    # nan and infinities become 0, as ONNX leaves that open
    return int(number) if isfinite(number) else 0


def _narrowed(numbers: Elements, dtype: DType, saturate: bool = True, mode: str = "up") -> Elements:
    if dtype.name == "float8_e8m0fnu":
        return [_power_of_two(each, saturate, mode) for each in numbers]
    greatest = _GREATEST.get(dtype.name)
    if saturate and greatest is not None:
        numbers = [each if isnan(each) else max(-greatest, min(each, greatest)) for each in numbers]
    return fitted(numbers, dtype)


def _power_of_two(number: float, saturate: bool, mode: str) -> float:
    if isnan(number) or number < 0:
        return nan
    if not number or isinf(number):
        exponent = _EXPONENT_MAX if number else -_EXPONENT_MAX
        return 2.0**exponent if saturate else nan
    # the fraction is in [0.5, 1), and 0.5 is an exact power
    fraction, exponent = frexp(number)
    exponent -= 1
    if mode == "up":
        exponent += fraction > 0.5  # noqa: PLR2004  # see above
    elif mode == "nearest":
        exponent += fraction >= 0.75  # noqa: PLR2004  # the middle
    if saturate:
        exponent = max(-_EXPONENT_MAX, min(exponent, _EXPONENT_MAX))
    return 2.0**exponent if abs(exponent) <= _EXPONENT_MAX else nan


def _text_of(element: Any, dtype: DType) -> str:
    if not is_floating(dtype):
        return str(int(element))
    if isnan(element):
        return "NaN"
    if isinf(element):
        return "INF" if element > 0 else "-INF"
    plain = f"{_shortest(element, dtype if not is_foreign(dtype) else _SINGLE):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _shortest(element: float, dtype: DType) -> Decimal:
    """Return the fewest digits that identify an element of the dtype."""
    for digits in range(_DIGITS_MAX):
        near = Decimal(f"{element:.{digits}e}")
        unit = Decimal((0, (1,), int(near.as_tuple().exponent)))
        # below a power of two elements lie closer, so ``near`` may be another element
        for each in (near, near + unit, near - unit):
            if fitted([float(each)], dtype) == [element]:
                return each
    return Decimal(element)


def _parsed(text: str, dtype: DType) -> Any:
    if dtype == BOOL:
        known = {"true": True, "false": False}.get(text.strip().lower())
        return float(text) if known is None else known
    if not is_integer(dtype):
        return float(text)
    try:
        return int(text)
    except ValueError:
        return int(float(text))
