"""Arithmetic element by element that is not one atomic for every version and dtype."""

import numpy as np

from walle_stream.engine.lowering.precision import require_floating, require_numbers
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.rules import BOOL, is_integer
from walle_stream.errors import DTypeError, LoweringError


@lowers("Mod", kind=Kind.ATOMIC)
def _mod(call: Call) -> Result:
    left, right = (require_numbers(call.tensor(each), f"input {each}") for each in (0, 1))
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
    x, builder = require_floating(call.tensor(0)), call.builder
    positive = bool(call.number("detect_positive", 1))
    negative = bool(call.number("detect_negative", 1))
    if not positive and not negative:
        return builder.broadcast(builder.constant(np.zeros((), BOOL)), x.shape)
    if positive and negative:
        return builder.equal(builder.unary(Operator.ABS, x), np.inf)
    return builder.equal(x, np.inf if positive else -np.inf)


@lowers("Reciprocal")
def _reciprocal(call: Call) -> Result:
    return call.builder.div(1, require_floating(call.tensor(0)))
