"""Operators of one element."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from math import copysign, inf, nan
from typing import Any, Final

from walle_stream.engine.operators import Operator
from walle_stream.engine.rules import BOOL, is_floating
from walle_stream.testing.toy.elements import Value, fitted

type OfOne = Callable[[Any], Any]

_WHOLE_FROM: Final = float(1 << 52)
"""Limit from which on every float is an integer."""


def unary(which: Operator) -> Callable[[Sequence[Value], Mapping[str, Any]], Value]:
    """Return the kernel of an operator in ``UNARY``, except conversions."""
    floating, whole = _FLOATING.get(which), _WHOLE.get(which)

    def kernel(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
        (x,) = inputs
        function = floating if is_floating(x.dtype) else whole
        if x.dtype == BOOL:
            function = _TRUTH.get(which)
        if function is None:
            raise TypeError(f"{which} of {x.dtype.name}")
        dtype = BOOL if which is Operator.IS_NAN else x.dtype
        return Value(x.shape, dtype, fitted(map(function, x.elements), dtype))

    return kernel


def _guarded(function: OfOne, refused: OfOne, overflown: OfOne = abs) -> OfOne:
    """Wrap a function of ``math`` with results for the arguments for which it raises errors."""

    def guarded(x: float) -> float:
        try:
            return float(function(x))
        except ValueError:
            return float(refused(x))
        except OverflowError:
            return float(overflown(x))

    return guarded


def _to_whole(function: OfOne) -> OfOne:
    # an int has no negative zero
    return lambda x: copysign(float(function(x)), x) if abs(x) < _WHOLE_FROM else x


def _sign(x: float) -> float:
    return x if x != x else float((x > 0) - (x < 0))  # noqa: PLR0124  # nan


def _same(x: Any) -> Any:
    return x


def _nan(_x: float) -> float:
    return nan


_FLOATING: Final[Mapping[Operator, OfOne]] = {
    Operator.ABS: abs,
    Operator.NEG: operator.neg,
    Operator.SIGN: _sign,
    Operator.CEIL: _to_whole(math.ceil),
    Operator.FLOOR: _to_whole(math.floor),
    Operator.ROUND: _to_whole(round),
    Operator.SQRT: _guarded(math.sqrt, _nan),
    Operator.EXP: _guarded(math.exp, _nan, lambda _: inf),
    Operator.LOG: _guarded(math.log, lambda x: nan if x else -inf),
    Operator.SIN: _guarded(math.sin, _nan),
    Operator.COS: _guarded(math.cos, _nan),
    Operator.TAN: _guarded(math.tan, _nan),
    Operator.ASIN: _guarded(math.asin, _nan),
    Operator.ACOS: _guarded(math.acos, _nan),
    Operator.ATAN: math.atan,
    Operator.SINH: _guarded(math.sinh, _nan, lambda x: copysign(inf, x)),
    Operator.COSH: _guarded(math.cosh, _nan, lambda _: inf),
    Operator.TANH: math.tanh,
    Operator.ASINH: math.asinh,
    Operator.ACOSH: _guarded(math.acosh, _nan),
    Operator.ATANH: _guarded(math.atanh, lambda x: copysign(inf, x) if abs(x) == 1 else nan),
    Operator.ERF: math.erf,
    Operator.IS_NAN: math.isnan,
}

_WHOLE: Final[Mapping[Operator, OfOne]] = {
    Operator.ABS: abs,
    Operator.NEG: operator.neg,
    Operator.SIGN: lambda x: (x > 0) - (x < 0),
    Operator.NOT: operator.invert,
    Operator.CEIL: _same,
    Operator.FLOOR: _same,
    Operator.ROUND: _same,
}

_TRUTH: Final[Mapping[Operator, OfOne]] = {Operator.NOT: operator.not_, Operator.ABS: _same}
