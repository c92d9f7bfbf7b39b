"""Arithmetic element by element that is not one atomic for every version and dtype."""

import numpy as np

from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import BOOL, is_floating, is_integer
from walle_stream.errors import DTypeError, LoweringError


@lowers("Mod", kind=Kind.ATOMIC)
def _mod(call: Call) -> Result:
    left, right = call.tensor(0), call.tensor(1)
    for each in (left, right):
        if not (is_integer(each.dtype) or is_floating(each.dtype)):
            raise DTypeError(f"there is no remainder of {each.dtype.name}")
    fmod = call.number("fmod", 0)
    if fmod not in {0, 1}:
        raise LoweringError(f"attribute 'fmod' must be 0 or 1, not {fmod}")
    return call.builder.binary(Operator.FMOD if fmod else Operator.MOD, left, right)


@lowers("BitShift", kind=Kind.ATOMIC)
def _bit_shift(call: Call) -> Result:
    left, right = call.tensor(0), call.tensor(1)
    for each in (left, right):
        if not is_integer(each.dtype):
            raise DTypeError(f"bits of {each.dtype.name} cannot be shifted, only of integers")
    directions = {"LEFT": Operator.SHIFT_LEFT, "RIGHT": Operator.SHIFT_RIGHT}
    direction = call.text("direction")
    if direction not in directions:
        raise LoweringError(f"attribute 'direction' must be LEFT or RIGHT, not {direction!r}")
    return call.builder.binary(directions[direction], left, right)


@lowers("IsInf")
def _is_inf(call: Call) -> Result:
    x, builder = _floating(call), call.builder
    positive = bool(call.number("detect_positive", 1))
    negative = bool(call.number("detect_negative", 1))
    if not positive and not negative:
        return builder.broadcast(builder.constant(np.zeros((), BOOL)), x.shape)
    if positive and negative:
        return builder.equal(builder.unary(Operator.ABS, x), np.inf)
    return builder.equal(x, np.inf if positive else -np.inf)


@lowers("Reciprocal")
def _reciprocal(call: Call) -> Result:
    return call.builder.div(1, _floating(call))


def _floating(call: Call) -> Tensor:
    x = call.tensor(0)
    if not is_floating(x.dtype):
        raise DTypeError(f"floating numbers are expected, not {x.dtype.name}")
    return x
