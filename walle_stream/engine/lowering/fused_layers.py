"""Operators of com.microsoft that join others of ONNX: products, activations and normalisations.

The optimisers of onnxruntime and of exporters write them.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import ACTIVATIONS, swish
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import widened
from walle_stream.engine.lowering.products import multiply
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.errors import LoweringError, ShapeError

MICROSOFT: Final = "com.microsoft"


@lowers("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _matmul(call: Call) -> Result:
    product = multiply(call.builder, _operand(call, 0, "A"), _operand(call, 1, "B"))
    alpha = call.real("alpha", 1.0)
    return product if alpha == 1 else call.builder.mul(product, alpha)


def _operand(call: Call, number: int, letter: str) -> Tensor:
    x = call.tensor(number)
    order = [*range(x.rank)]
    if x.rank < 2:  # noqa: PLR2004  # a vector is not transposed
        return x
    if call.number(f"transBatch{letter}", 0):
        # the first axis becomes that of the rows
        order = [*order[1:-1], 0, order[-1]]
    if call.number(f"trans{letter}", 0):
        order[-2:] = order[:-3:-1]
    return moves.transpose(call.builder, x, order)


@lowers("FusedGemm", domain=MICROSOFT)
def _gemm(call: Call) -> Result:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = [call.real(name) for name in names if call.attribute(name) is not None]
    result = call.apply("Gemm", *call.inputs, **call.kept("alpha", "beta", "transA", "transB"))
    return _activated(call, result, given)


@lowers("FusedConv", domain=MICROSOFT)
def _conv(call: Call) -> Result:
    kept = call.kept("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    result = call.apply("Conv", *call.inputs[:3], **kept)
    if call.has(3):
        result = call.builder.add(result, call.builder.broadcast(call.tensor(3), result.shape))
    return _activated(call, result, call.reals("activation_params"))


def _activated(call: Call, x: Tensor, given: Sequence[float]) -> Tensor:
    builder, name = call.builder, call.text("activation", "")
    if not name:
        return x
    if name == "Clip" and len(given) == 2:  # noqa: PLR2004  # the bounds
        return builder.clip(x, *given)
    if name not in ACTIVATIONS:
        raise LoweringError(f"there is no activation {name!r}, only {', '.join(ACTIVATIONS)}")
    function, defaults = ACTIVATIONS[name]
    parameters = [*given, *defaults[len(given) :]][: len(defaults)]
    return builder.cast(function(builder, widened(builder, x), *parameters), x.dtype)


@lowers("BiasAdd", domain=MICROSOFT)
def _bias_add(call: Call) -> Result:
    return _total(call, (0, 1, 2))


def _total(call: Call, numbers: Sequence[int]) -> Tensor:
    # the sum of a tensor and of all that is given of others, which are spread to its shape
    builder, x = call.builder, call.tensor(numbers[0])
    others = [builder.broadcast(call.tensor(n), x.shape) for n in numbers[1:] if call.has(n)]
    wide = [widened(builder, other) for other in (x, *others)]
    return reduce(builder.add, wide)


@lowers("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def _gelu(call: Call) -> Result:
    approximate = "tanh" if call.node.operator == "FastGelu" else "none"
    result = call.apply("Gelu", _total(call, (0, 1)), approximate=approximate)
    return call.builder.cast(result, call.tensor(0).dtype)


@lowers("QuickGelu", domain=MICROSOFT)
def _quick_gelu(call: Call) -> Result:
    builder, x = call.builder, call.tensor(0)
    alpha = call.real("alpha", 1.702)
    return builder.cast(swish(builder, widened(builder, x), alpha), x.dtype)


_EPSILON: Final = 1e-12
"""The default of operators that join a normalisation with others."""


@lowers("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer(call: Call) -> Result:
    total, epsilon = _total(call, (0, 1, 4)), call.real("epsilon", _EPSILON)
    weights = (call.tensor(2), call.optional(3))
    results = call.apply("LayerNormalization", total, *weights, outputs=3, epsilon=epsilon)
    return _as_first(call, results, total)


@lowers("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_simplified(call: Call) -> Result:
    total, epsilon = _total(call, (0, 1, 3)), call.real("epsilon", _EPSILON)
    y, inverse = call.apply(
        "SimplifiedLayerNormalization", total, call.tensor(2), outputs=2, epsilon=epsilon
    )
    return _as_first(call, (y, None, inverse), total)


def _as_first(call: Call, results: Sequence[Tensor | None], total: Tensor) -> Result:
    # the normalised tensor and the sum before have the dtype of the first input
    y, mean, inverse = results
    dtype = call.tensor(0).dtype
    assert y is not None  # noqa: S101  # only the moments are optional
    return call.builder.cast(y, dtype), mean, inverse, call.builder.cast(total, dtype)


@lowers("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer(call: Call) -> Result:
    builder, ids, mask = call.builder, call.tensor(0), call.optional(7)
    if ids.rank != 2:  # noqa: PLR2004  # batch, tokens
        raise ShapeError(f"ids of shape {list(ids.shape)} do not have 2 axes")
    places = call.tensor(8) if call.has(8) else builder.constant(np.arange(ids.shape[1]))
    embeddings = [_embedded(call, 2, ids), _embedded(call, 3, places)]
    if call.has(4):
        embeddings.append(_embedded(call, 4, call.tensor(1)))
    total = reduce(builder.add, embeddings)
    y = call.apply(
        "LayerNormalization", total, call.tensor(5), call.tensor(6),
        epsilon=call.real("epsilon", _EPSILON),
    )  # fmt: skip
    dtype = call.tensor(2).dtype
    return builder.cast(y, dtype), _lengths(builder, ids, mask), builder.cast(total, dtype)


def _embedded(call: Call, number: int, indices: Tensor) -> Tensor:
    table = call.tensor(number)
    if table.rank != 2:  # noqa: PLR2004  # rows of features
        raise ShapeError(f"input {number} of shape {list(table.shape)} is not a matrix")
    return widened(call.builder, call.apply("Gather", table, indices))


def _lengths(builder: Builder, ids: Tensor, mask: Tensor | None) -> Tensor:
    # the number of tokens that each row of the mask shows
    if mask is None:
        return builder.constant(np.zeros(ids.shape[0], np.int32))
    shown = builder.cast(builder.equal(mask, 1), np.int32)
    return builder.sum(shown, (1,), keep=False)
