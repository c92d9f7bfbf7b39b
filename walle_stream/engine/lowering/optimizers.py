"""Optimizers of ``ai.onnx.preview.training``: Adagrad, Adam, Momentum."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.errors import LoweringError, ShapeError

_TRAINING: Final = "ai.onnx.preview.training"


def _optimized(call: Call, kinds: int) -> list[tuple[Tensor, ...]]:
    # all tensors, then all gradients, and so on: one tuple a tensor
    given = call.tensors()[2:]
    count = len(given) // kinds
    if not count or len(given) != count * kinds:
        raise LoweringError(f"{len(given)} tensors are not {kinds} for each that is optimized")
    groups = [tuple(given[number::count]) for number in range(count)]
    for each in groups:
        wide_dtype(*(other.dtype for other in each))
        if any(other.shape != each[0].shape for other in each):
            raise ShapeError(f"what is kept of shape {list(each[0].shape)} has another one")
    return groups


def _scalar(call: Call, number: int, dtype: DType) -> Tensor:
    x = call.tensor(number)
    if x.size != 1:
        raise ShapeError(f"input {number} of shape {list(x.shape)} is no scalar")
    return call.builder.cast(call.builder.reshape(x, ()), dtype)


def _regularized(call: Call, x: Tensor, gradient: Tensor) -> Tensor:
    factor = call.real("norm_coefficient", 0.0)
    return call.builder.add(call.builder.mul(x, factor), gradient) if factor else gradient


def _in_order(rows: Sequence[tuple[Tensor, ...]]) -> Result:
    return tuple(each for kind in zip(*rows, strict=True) for each in kind)


@lowers("Adagrad", domain=_TRAINING)
def _adagrad(call: Call) -> Result:
    builder, results = call.builder, []
    for x, gradient, squares in _optimized(call, 3):
        rate, count = _scalar(call, 0, x.dtype), _scalar(call, 1, x.dtype)
        decay = builder.add(builder.mul(count, call.real("decay_factor", 0.0)), 1.0)
        slope = _regularized(call, x, gradient)
        added = builder.add(squares, builder.mul(slope, slope))
        divisor = builder.add(builder.unary(Operator.SQRT, added), call.real("epsilon", 1e-6))
        step = builder.div(builder.mul(builder.div(rate, decay), slope), divisor)
        results.append((builder.sub(x, step), added))
    return _in_order(results)


@lowers("Adam", domain=_TRAINING)
def _adam(call: Call) -> Result:
    builder, results = call.builder, []
    alpha, beta = call.real("alpha", 0.9), call.real("beta", 0.999)
    post = call.real("norm_coefficient_post", 0.0)
    for x, gradient, momentum, squares in _optimized(call, 4):
        rate, count = _scalar(call, 0, x.dtype), _scalar(call, 1, x.dtype)
        slope = _regularized(call, x, gradient)
        mean = builder.add(builder.mul(momentum, alpha), builder.mul(slope, 1 - alpha))
        square = builder.mul(builder.mul(slope, slope), 1 - beta)
        square = builder.add(builder.mul(squares, beta), square)
        root = builder.add(builder.unary(Operator.SQRT, square), call.real("epsilon", 1e-6))
        unbiased = builder.div(
            builder.unary(Operator.SQRT, _power_left(builder, beta, count)),
            _power_left(builder, alpha, count),
        )
        adjusted = builder.mul(rate, builder.select(builder.less(0, count), unbiased, 1.0))
        new = builder.sub(x, builder.div(builder.mul(mean, adjusted), root))
        results.append((builder.mul(new, 1 - post) if post else new, mean, square))
    return _in_order(results)


def _power_left(builder: Builder, base: float, count: Tensor) -> Tensor:
    return builder.sub(1.0, builder.binary(Operator.POW, base, count))


@lowers("Momentum", domain=_TRAINING)
def _momentum(call: Call) -> Result:
    builder, results = call.builder, []
    alpha, beta, mode = call.real("alpha"), call.real("beta"), call.text("mode")
    if mode not in {"standard", "nesterov"}:
        raise LoweringError(f"momentum of mode {mode!r}; standard and nesterov are known")
    for x, gradient, momentum in _optimized(call, 3):
        rate, count = _scalar(call, 0, x.dtype), _scalar(call, 1, x.dtype)
        slope = _regularized(call, x, gradient)
        weight = builder.select(
            builder.less(0, count), beta, builder.constant(np.ones((), x.dtype))
        )
        new = builder.add(builder.mul(momentum, alpha), builder.mul(slope, weight))
        step = new if mode == "standard" else builder.add(slope, builder.mul(new, alpha))
        results.append((builder.sub(x, builder.mul(rate, step)), new))
    return _in_order(results)
