"""Losses of training: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from math import prod

import numpy as np

from walle_stream.engine.lowering.addressing import flat_take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.normalization import log_softmax
from walle_stream.engine.lowering.precision import widened
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError


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
        raise DTypeError(f"labels are whole numbers, not {target.dtype.name}")
    return target


def _loss(call: Call, x: Tensor) -> Tensor:
    builder, target = call.builder, _classes(call, x)
    reduction = call.text("reduction", "mean")
    if reduction not in {"none", "sum", "mean"}:
        raise LoweringError(f"a loss is not reduced by {reduction!r}")
    labels = builder.cast(target, np.int64)
    ignored: Tensor | None = None
    if "ignore_index" in call.node.attributes:
        ignored = builder.equal(labels, call.number("ignore_index"))
        labels = builder.select(ignored, 0, labels)
    loss = builder.unary(Operator.NEG, widened(builder, _picked(builder, x, labels)))
    weights = _weights(call, labels, loss.dtype)
    if weights is not None:
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
    # a label that is no class would be found in another row: the table of classes refuses it
    columns = flat_take(builder, builder.constant(np.arange(classes) * inner), labels)
    places = builder.add(columns, builder.constant(rows.reshape(labels.shape)))
    return flat_take(builder, x, places)


def _weights(call: Call, labels: Tensor, dtype: DType) -> Tensor | None:
    weights, classes = call.optional(2), call.tensor(0).shape[1]
    if weights is None:
        return None
    if weights.shape != (classes,):
        raise ShapeError(f"weights of shape {list(weights.shape)} for {classes} classes")
    return call.builder.cast(flat_take(call.builder, weights, labels), dtype)
