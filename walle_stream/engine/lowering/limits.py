"""Functions that cut off values: Clip, Shrink, Dropout."""

from math import ceil, floor, isfinite

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import require_floating, require_numbers, widened
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import BOOL, is_integer
from walle_stream.errors import LoweringError

_INPUTS_SINCE = 11
"""The opset that made the bounds of Clip inputs."""

_MODE_SINCE = 12
"""The opset that made the ratio and the mode of Dropout inputs."""


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer dtype of any width."""
    bits = int(dtype.name.removeprefix("u").removeprefix("int"))
    if dtype.name.startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


@lowers("Clip")
def _clip(call: Call) -> Result:
    x, builder = require_numbers(call.tensor(0)), call.builder
    low = _bound(call, "min", 1)
    high = _bound(call, "max", 2)
    if low is not None:
        x = builder.maximum(x, low)
    return x if high is None else builder.minimum(x, high)


def _bound(call: Call, name: str, number: int) -> Tensor | None:
    x = call.tensor(0)
    if call.version < _INPUTS_SINCE:
        is_given = call.attribute(name) is not None
        return call.builder.as_tensor(call.real(name), x) if is_given else None
    return call.scalar(number) if call.has(number) else None


@lowers("Shrink")
def _shrink(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    bias, limit = call.real("bias", 0.0), call.real("lambd", 0.5)
    if is_integer(x.dtype):
        return _shrink_integers(builder, x, bias, limit)
    require_floating(x)
    above = builder.select(builder.less(limit, x), builder.sub(x, bias), 0)
    return builder.select(builder.less(x, -limit), builder.add(x, bias), above)


def _shrink_integers(builder: Builder, x: Tensor, bias: float, limit: float) -> Tensor:
    # integers are compared and moved as integers, since float64 cannot hold all of int64
    if not isfinite(bias) or not isfinite(limit):
        raise LoweringError(f"bias {bias} and lambd {limit} must be finite for whole numbers")
    least, most = integer_limits(x.dtype)
    low, high = ceil(-limit), floor(limit)
    if bias.is_integer():
        step = builder.constant(np.array(int(bias) % (1 << 64), np.uint64).astype(x.dtype))
        raised, lowered = builder.add(x, step), builder.sub(x, step)
    else:
        wide = builder.cast(x, "float64")
        raised = builder.cast(builder.add(wide, bias), x.dtype)
        lowered = builder.cast(builder.sub(wide, bias), x.dtype)
    nothing = builder.broadcast(builder.as_tensor(0, x), x.shape)
    if high < least:
        result = lowered
    else:
        result = nothing if high > most else builder.select(builder.less(high, x), lowered, nothing)
    if low > most:
        return raised
    return result if low < least else builder.select(builder.less(x, low), raised, result)


@lowers("Dropout")
def _dropout(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    if ratio := _ratio(call):
        kept, mask = _dropped(call, x, ratio)
    else:
        kept, mask = x, builder.broadcast(builder.constant(np.ones((), BOOL)), x.shape)
    if not call.wants(1):
        return kept
    # the mask is bool since opset 10
    return kept, builder.cast(mask, BOOL if call.version >= 10 else x.dtype)  # noqa: PLR2004


def _ratio(call: Call) -> float:
    # the ratio of dropped elements: 0 unless the node is in training mode
    if call.version < _MODE_SINCE:
        ratio = call.real("ratio", 0.5)
        is_training = call.version < 7 and not call.number("is_test", 0)  # noqa: PLR2004
    else:
        is_training = call.has(2) and bool(_scalar(call, 2, "training_mode"))
        ratio = _scalar(call, 1, "ratio") if is_training and call.has(1) else 0.5
    if not is_training:
        return 0.0
    if not 0 <= ratio < 1:
        raise LoweringError(f"ratio {ratio} is not at least 0 and below 1")
    return ratio


def _scalar(call: Call, number: int, name: str) -> float:
    x = call.scalar(number)
    if x.dtype != BOOL:
        require_numbers(x, name)
    return float(call.values(number).reshape(-1)[0])


def _dropped(call: Call, x: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    builder = call.builder
    seed = None if call.attribute("seed") is None else call.number("seed") % (1 << 32)
    chances = builder.emit(Operator.RANDOM, shape=x.shape, dtype=np.dtype(np.float64), seed=seed)
    mask = builder.less_equal(ratio, chances)
    kept = builder.select(mask, builder.mul(widened(builder, x), 1 / (1 - ratio)), 0)
    return builder.cast(kept, x.dtype), mask
