"""Operators of two elements, and selection between two elements."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from math import copysign, inf, nan
from typing import Any, Final

from walle_stream.engine.operators import COMPARISON, Operator
from walle_stream.engine.program import DType
from walle_stream.engine.rules import BOOL, is_floating
from walle_stream.testing.toy.elements import Value, bits_of, fitted

type OfTwo = Callable[[Any, Any], Any]


def binary(which: Operator) -> Callable[[Sequence[Value], Mapping[str, Any]], Value]:
    """Return the kernel of an operator in ``BINARY``."""

    def kernel(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
        x, y = inputs
        dtype = BOOL if which in COMPARISON else x.dtype
        function = of_two(which, x.dtype)
        return Value(x.shape, dtype, fitted(map(function, x.elements, y.elements), dtype))

    return kernel


def of_two(which: Operator, dtype: DType) -> OfTwo:
    """Return the function of two elements for an operator.

    Args:
        which: An operator in ``BINARY``.
        dtype: Dtype of both elements.

    Returns:
        The function; its result must still be fitted to the dtype.

    Raises:
        TypeError: The operator does not support the dtype.
    """
    if which in {Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT}:
        return _shift(which, bits_of(dtype)[0])
    if which is Operator.POW and not is_floating(dtype):
        return _power_of_whole(1 << bits_of(dtype)[0])
    found = _BOTH.get(which) or (_FLOATING if is_floating(dtype) else _WHOLE).get(which)
    if found is None:
        raise TypeError(f"{which} of {dtype.name}")
    return found


def select(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
    """Select elements by a condition; see ``Operator.SELECT``."""
    condition, x, y = inputs
    chosen = [
        yes if is_first else no
        for is_first, yes, no in zip(condition.elements, x.elements, y.elements, strict=True)
    ]
    return Value(x.shape, x.dtype, chosen)


def _greater(x: Any, y: Any) -> Any:
    return x if x >= y or x != x else y  # noqa: PLR0124  # nan


def _smaller(x: Any, y: Any) -> Any:
    return x if x <= y or x != x else y  # noqa: PLR0124  # nan


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    return copysign(inf, x) * copysign(1.0, y) if x and x == x else nan  # noqa: PLR0124  # nan


def _divide_whole(x: int, y: int) -> int:
    if not y:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -inf if x < 0 and y % 2 == 1 else inf
    except ValueError:
        # a negative base to a fractional power, or zero to a negative power
        if x:
            return nan
        return copysign(inf, x) if y % 2 == 1 else inf


def _power_of_whole(modulus: int) -> OfTwo:
    def power(x: int, y: int) -> int:
        if y >= 0:
            return pow(x, y, modulus)
        if x == -1:
            return -1 if y % 2 else 1
        return 1 if x == 1 else 0

    return power


def _modulo(x: float, y: float) -> float:
    return x % y if y else nan


def _remainder(x: float, y: float) -> float:
    try:
        return math.fmod(x, y)
    except ValueError:
        return nan


def _shift(which: Operator, bits: int) -> OfTwo:
    if which is Operator.SHIFT_LEFT:
        return lambda x, y: x << y if 0 <= y < bits else 0
    return lambda x, y: x >> (y if 0 <= y < bits else bits)


_BOTH: Final[Mapping[Operator, OfTwo]] = {
    Operator.ADD: operator.add,
    Operator.SUB: operator.sub,
    Operator.MUL: operator.mul,
    Operator.MINIMUM: _smaller,
    Operator.MAXIMUM: _greater,
    Operator.EQUAL: operator.eq,
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
}

_FLOATING: Final[Mapping[Operator, OfTwo]] = {
    Operator.DIV: _divide,
    Operator.POW: _power,
    Operator.MOD: _modulo,
    Operator.FMOD: _remainder,
}

_WHOLE: Final[Mapping[Operator, OfTwo]] = {
    Operator.DIV: _divide_whole,
    Operator.MOD: lambda x, y: x % y if y else 0,
    Operator.FMOD: lambda x, y: x - y * _divide_whole(x, y) if y else 0,
    Operator.AND: operator.and_,
    Operator.OR: operator.or_,
    Operator.XOR: operator.xor,
}
