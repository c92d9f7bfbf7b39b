"""Training: optimizers of ``ai.onnx.preview.training``, and losses."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.lowering.addressing import flat_take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.normalization import log_softmax
from walle_stream.engine.lowering.precision import wide_dtype, widened
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_TRAINING: Final = "ai.onnx.preview.training"


def _optimized(call: Call, kinds: int) -> Iterator[tuple[Tensor, ...]]:
    # the inputs are all tensors, then all gradients, and so on; yields for each tensor itself, its
    # gradient, the rate, the count of updates, and its accumulators
    builder, tensors = call.builder, call.tensors()[2:]
    count = len(tensors) // kinds
    if not count or len(tensors) != count * kinds:
        raise LoweringError(f"{len(tensors)} tensors are not {kinds} for each optimized one")
    groups = [tuple(tensors[number::count]) for number in range(count)]
    for group in groups:
        wide_dtype(*(other.dtype for other in group))
        if any(other.shape != group[0].shape for other in group):
            raise ShapeError(f"a gradient or accumulator is not of shape {list(group[0].shape)}")
    for x, gradient, *kept in groups:
        rate, updates = call.scalar(0, x.dtype), call.scalar(1, x.dtype)
        factor = call.real("norm_coefficient", 0.0)
        slope = builder.add(builder.mul(x, factor), gradient) if factor else gradient
        yield x, slope, rate, updates, *kept


def _in_order(rows: Sequence[tuple[Tensor, ...]]) -> Result:
    return tuple(tensor for kind in zip(*rows, strict=True) for tensor in kind)


@lowers("Adagrad", domain=_TRAINING)
def _adagrad(call: Call) -> Result:
    builder, results = call.builder, []
    for x, slope, rate, count, squares in _optimized(call, 3):
        decay = builder.add(builder.mul(count, call.real("decay_factor", 0.0)), 1.0)
        added = builder.add(squares, builder.mul(slope, slope))
        divisor = builder.add(builder.sqrt(added), call.real("epsilon", 1e-6))
        step = builder.div(builder.mul(builder.div(rate, decay), slope), divisor)
        results.append((builder.sub(x, step), added))
    return _in_order(results)


@lowers("Adam", domain=_TRAINING)
def _adam(call: Call) -> Result:
    builder, results = call.builder, []
    alpha, beta = call.real("alpha", 0.9), call.real("beta", 0.999)
    post = call.real("norm_coefficient_post", 0.0)
    for x, slope, rate, count, momentum, squares in _optimized(call, 4):
        mean = builder.add(builder.mul(momentum, alpha), builder.mul(slope, 1 - alpha))
        square = builder.mul(builder.mul(slope, slope), 1 - beta)
        square = builder.add(builder.mul(squares, beta), square)
        root = builder.add(builder.sqrt(square), call.real("epsilon", 1e-6))
        unbiased = builder.div(
            builder.sqrt(_power_left(builder, beta, count)),
            _power_left(builder, alpha, count),
        )
        adjusted = builder.mul(rate, builder.select(builder.less(0, count), unbiased, 1.0))
        new = builder.sub(x, builder.div(builder.mul(mean, adjusted), root))
        results.append((builder.mul(new, 1 - post) if post else new, mean, square))
    return _in_order(results)


def _power_left(builder: Builder, base: float, count: Tensor) -> Tensor:
    return builder.sub(1.0, builder.pow(base, count))


@lowers("Momentum", domain=_TRAINING)
def _momentum(call: Call) -> Result:
    builder, results = call.builder, []
    alpha, beta = call.real("alpha"), call.real("beta")
    mode = call.choice("mode", ("standard", "nesterov"))
    for x, slope, rate, count, momentum in _optimized(call, 3):
        weight = builder.select(builder.less(0, count), beta, builder.as_tensor(1, x))
        new = builder.add(builder.mul(momentum, alpha), builder.mul(slope, weight))
        step = new if mode == "standard" else builder.add(slope, builder.mul(new, alpha))
        results.append((builder.sub(x, builder.mul(rate, step)), new))
    return _in_order(results)


@lowers("NegativeLogLikelihoodLoss")
def _likelihood(call: Call) -> Result:
    return _loss(call, call.tensor(0))


@lowers("SoftmaxCrossEntropyLoss")
def _cross_entropy(call: Call) -> Result:
    x = call.tensor(0)
    _classes(call, x)
    shares = log_softmax(call.builder, x, (1,))
    return _loss(call, shares), shares


def _classes(call: Call, x: Tensor) -> Tensor:
    target = call.tensor(1)
    if x.rank < 2 or target.shape != (x.shape[0], *x.shape[2:]):  # noqa: PLR2004  # batch, classes
        raise ShapeError(f"labels of shape {list(target.shape)} for scores of {list(x.shape)}")
    if not is_integer(target.dtype):
        raise DTypeError(f"labels must be whole numbers, not {target.dtype.name}")
    return target


def _loss(call: Call, x: Tensor) -> Tensor:
    builder, target = call.builder, _classes(call, x)
    reduction = call.choice("reduction", ("none", "sum", "mean"), "mean")
    labels = builder.cast(target, np.int64)
    ignored: Tensor | None = None
    if "ignore_index" in call.node.attributes:
        ignored = builder.equal(labels, call.number("ignore_index"))
        labels = builder.select(ignored, 0, labels)
    loss = builder.neg(widened(builder, _picked(builder, x, labels)))
    weights, classes = call.optional(2), x.shape[1]
    if weights is not None and weights.shape != (classes,):
        raise ShapeError(f"weights of shape {list(weights.shape)} for {classes} classes")
    if weights is not None:
        weights = builder.cast(flat_take(builder, weights, labels), loss.dtype)
        loss = builder.mul(loss, weights)
    if ignored is not None:
        loss = builder.select(ignored, 0.0, loss)
        ones = builder.constant(np.ones((), loss.dtype))
        weights = builder.select(ignored, 0.0, ones if weights is None else weights)
    axes = range(loss.rank)
    if reduction == "mean":
        total = builder.sum(loss, axes, keep=False)
        divisor = loss.size if weights is None else builder.sum(weights, axes, keep=False)
        loss = builder.div(total, divisor)
    elif reduction == "sum":
        loss = builder.sum(loss, axes, keep=False)
    return builder.cast(loss, x.dtype)


def _picked(builder: Builder, x: Tensor, labels: Tensor) -> Tensor:
    batch, classes = x.shape[:2]
    inner = prod(x.shape[2:])
    rows = np.add.outer(np.arange(batch) * classes * inner, np.arange(inner))
    # a label outside the classes would read another row, so the table of classes refuses it
    columns = flat_take(builder, builder.constant(np.arange(classes) * inner), labels)
    addresses = builder.add(columns, builder.constant(rows.reshape(labels.shape)))
    return flat_take(builder, x, addresses)
