"""Attention, FlexAttention and RotaryEmbedding."""

from functools import reduce
from math import sqrt
from typing import Final

import numpy as np

from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder, common_shape
from walle_stream.engine.lowering.flatten import flattened_graph
from walle_stream.engine.lowering.normalization import softmax
from walle_stream.engine.lowering.precision import float_dtype, wide_dtype
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Call, Result, Stages, lowers
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.engine.rules import BOOL, is_integer
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_UNMASKED: Final = 1
"""Value of ``qk_matmul_output_mode`` for the scores before a mask."""

_SINK: Final = 7
"""An input that only the attention of com.microsoft has: a score of each head without a value."""


@lowers("Attention")
def _attention(call: Call) -> Result:
    builder = call.builder
    query = _heads(call, 0, "q_num_heads")
    key, value = _heads(call, 1, "kv_num_heads"), _heads(call, 2, "kv_num_heads")
    if call.has(4) != call.has(5):
        raise LoweringError("only one of past_key and past_value is given")
    past = 0
    if call.has(4):
        past = _cached(call, 4).shape[2]
        key = moves.concat(builder, [_cached(call, 4), key], 2)
        value = moves.concat(builder, [_cached(call, 5), value], 2)
    mode = call.number("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:  # noqa: PLR2004  # the last stage
        raise LoweringError(f"attribute 'qk_matmul_output_mode' is {mode}; 0 to 3 are known")
    stages = [_scores(builder, query, key, _scale(call, query))]
    cap = call.real("softcap", 0.0)
    stages.append(builder.mul(builder.tanh(builder.div(stages[0], cap)), cap) if cap else stages[0])
    allowed = _allowed(call, stages[0].shape, past)
    stages.append(_masked(call, stages[_UNMASKED], allowed))
    stages.append(_shares(call, stages[-1], allowed))
    result = builder.cast(_weighted(builder, stages[-1], value), query.dtype)
    if call.tensor(0).rank == 3:  # noqa: PLR2004  # heads side by side
        batch, heads, length, width = result.shape
        result = moves.transpose(builder, result, (0, 2, 1, 3))
        result = builder.reshape(result, (batch, length, heads * width))
    shown = builder.cast(stages[mode], query.dtype) if call.wants(3) else None
    return result, key, value, shown


def _heads(call: Call, number: int, name: str) -> Tensor:
    builder, x = call.builder, call.tensor(number)
    if x.rank == 4:  # noqa: PLR2004  # batch, heads, length, width
        return x
    if x.rank != 3:  # noqa: PLR2004  # batch, length, width of all heads
        raise ShapeError(f"input {number} of shape {list(x.shape)} has neither 3 nor 4 axes")
    return split_heads(builder, x, call.number(name))


def split_heads(builder: Builder, x: Tensor, heads: int) -> Tensor:
    """Move ``(batch, length, heads * width)`` to ``(batch, heads, length, width)``.

    Raises:
        ShapeError: The heads do not divide the last axis.
    """
    batch, length, width = x.shape
    if heads < 1 or width % heads:
        raise ShapeError(f"shape {list(x.shape)} in {heads} heads")
    split = builder.reshape(x, (batch, length, heads, width // heads))
    return moves.transpose(builder, split, (0, 2, 1, 3))


def _cached(call: Call, number: int) -> Tensor:
    x = call.tensor(number)
    if x.rank != 4:  # noqa: PLR2004  # batch, heads, length, width
        raise ShapeError(f"input {number} of shape {list(x.shape)} does not have 4 axes")
    return x


def _scale(call: Call, query: Tensor) -> float:
    return call.real("scale", 1 / sqrt(query.shape[-1] or 1))


def _scores(builder: Builder, query: Tensor, key: Tensor, scale: float) -> Tensor:
    batch, heads, length, width = query.shape
    groups, keys = key.shape[1:3]
    if key.shape != (batch, groups, keys, width) or not groups or heads % groups:
        raise ShapeError(f"queries of shape {list(query.shape)}, keys of {list(key.shape)}")
    dtype = wide_dtype(query.dtype, key.dtype)
    # heads that share keys are consecutive, so their queries are rows of one matrix
    scaled = builder.mul(builder.cast(query, dtype), scale)
    rows = builder.reshape(scaled, (batch, groups, heads // groups * length, width))
    columns = moves.transpose(builder, builder.cast(key, dtype), (0, 1, 3, 2))
    return builder.reshape(builder.matmul(rows, columns), (batch, heads, length, keys))


def _weighted(builder: Builder, shares: Tensor, value: Tensor) -> Tensor:
    batch, heads, length, keys = shares.shape
    groups, width = value.shape[1], value.shape[3]
    if value.shape != (batch, groups, keys, width) or not groups or heads % groups:
        raise ShapeError(f"scores of shape {list(shares.shape)}, values of {list(value.shape)}")
    dtype = wide_dtype(shares.dtype, value.dtype)
    rows = builder.reshape(shares, (batch, groups, heads // groups * length, keys))
    result = builder.matmul(builder.cast(rows, dtype), builder.cast(value, dtype))
    return builder.reshape(result, (batch, heads, length, width))


def _allowed(call: Call, shape: Shape, past: int) -> Tensor | None:
    # the keys that each query sees, apart from a numeric mask
    builder = call.builder
    batch, _, length, keys = shape
    columns = builder.constant(np.arange(keys))
    rows = builder.constant(np.arange(past, past + length).reshape(-1, 1))
    conditions = []
    lengths = call.optional(6)
    if lengths is not None:
        if lengths.shape != (batch,):
            raise ShapeError(f"lengths of shape {list(lengths.shape)} for a batch of {batch}")
        lengths = builder.reshape(builder.cast(lengths, np.int64), (batch, 1, 1, 1))
        conditions.append(builder.less(columns, lengths))
        if not call.has(4):
            # the queries are the last tokens of an external cache
            rows = builder.add(rows, builder.sub(lengths, length))
    left, right = call.number("left_window_size", -1), call.number("right_window_size", -1)
    if call.number("is_causal", 0):
        right = 0
    if right >= 0:
        last = builder.add(rows, min(right, keys + length))
        conditions.append(builder.less_equal(columns, last))
    if left >= 0:
        first = builder.sub(rows, min(left, past + keys + length))
        conditions.append(builder.less_equal(first, columns))
    mask = call.optional(3)
    if mask is not None and mask.dtype == BOOL:
        conditions.append(_padded(builder, mask, keys, fill=False))
    if not conditions:
        return None
    result = reduce(builder.logical_and, conditions)
    return None if result.data is not None and result.data.all() else result


def _padded(builder: Builder, mask: Tensor, keys: int, *, fill: float) -> Tensor:
    # keys beyond a short mask are hidden; a single column is broadcast
    if not mask.rank or mask.shape[-1] == 1 or mask.shape[-1] >= keys:
        return mask
    after = [0] * (mask.rank - 1) + [keys - mask.shape[-1]]
    return moves.pad(builder, mask, [0] * mask.rank, after, fill)


def _masked(call: Call, scores: Tensor, allowed: Tensor | None) -> Tensor:
    builder, mask = call.builder, call.optional(3)
    if mask is not None and mask.dtype != BOOL:
        numbers = builder.cast(mask, scores.dtype)
        numbers = _padded(builder, numbers, scores.shape[-1], fill=-np.inf)
        scores = builder.add(scores, builder.broadcast(numbers, scores.shape))
    if allowed is None:
        return scores
    if common_shape(allowed.shape, scores.shape) != scores.shape:
        raise ShapeError(f"a mask of {list(allowed.shape)} for scores of {list(scores.shape)}")
    return builder.select(allowed, scores, -np.inf)


def _shares(call: Call, scores: Tensor, allowed: Tensor | None) -> Tensor:
    builder, dtype = call.builder, scores.dtype
    code = call.number("softmax_precision", 0)
    if code:
        # a narrow softmax_precision does not reduce the precision of the scores
        scores = builder.cast(scores, wide_dtype(dtype, float_dtype(code, "softmax_precision")))
    mask, sink = call.optional(3), call.optional(_SINK)
    is_open = allowed is None or (allowed.data is not None and allowed.data.any(-1).all())
    if is_open and (mask is None or mask.dtype == BOOL) and sink is None:
        return builder.cast(softmax(builder, scores, (3,)), dtype)
    # a query that sees no key gets zeros instead of 0 / 0
    greatest = builder.max(scores, (3,))
    if sink is not None:
        sink = builder.cast(builder.reshape(sink, (1, scores.shape[1], 1, 1)), scores.dtype)
        greatest = builder.maximum(greatest, sink)
    shift = builder.select(builder.equal(greatest, -np.inf), 0.0, greatest)
    powers = builder.exp(builder.sub(scores, shift))
    total = builder.sum(powers, (3,))
    if sink is not None:
        total = builder.add(total, builder.exp(builder.sub(sink, shift)))
    total = builder.select(builder.equal(total, 0.0), 1.0, total)
    return builder.cast(builder.div(powers, total), dtype)


@lowers("FlexAttention", domain="ai.onnx.preview")
def _flex(call: Call) -> Result:
    # the node's graphs come between the two products
    node = call.node
    if len(node.inputs) != 3:  # noqa: PLR2004  # queries, keys, values
        raise LoweringError(f"{len(node.inputs)} inputs; queries, keys and values are expected")
    kept = call.kept("scale", "softmax_precision")
    scores, changed, shares, kept_shares = (
        call.inner_name(name) for name in ("scores", "score_mod", "shares", "prob_mod")
    )
    nodes = [call.stage("AttentionScores", node.inputs[:2], (scores,), kept)]
    nodes += _modified(call, "score_mod", scores, changed)
    nodes.append(Node("Softmax", (changed,), (shares,), {"axis": -1}, node.name, version=13))
    nodes += _modified(call, "prob_mod", shares, kept_shares)
    nodes.append(call.stage("AttentionValues", (kept_shares, node.inputs[2]), node.outputs))
    return Stages(*nodes)


def _modified(call: Call, name: str, before: str, after: str) -> list[Node]:
    graph = call.attribute(name)
    if graph is None:
        return [Node("Identity", (before,), (after,), {}, call.node.name, version=1)]
    if not isinstance(graph, Graph) or len(graph.outputs) != 1:
        raise LoweringError(f"attribute {name!r} is not a graph of one output")
    caller = Node(name, (before,), (after,), {}, call.node.name)
    return flattened_graph(caller, graph, f"{after}/")


@lowers("AttentionScores", domain=INNER_DOMAIN)
def _flex_scores(call: Call) -> Result:
    builder, query, key = call.builder, _cached(call, 0), _cached(call, 1)
    code = call.number("softmax_precision", 0)
    precision = float_dtype(code, "softmax_precision") if code else wide_dtype(query.dtype)
    return builder.cast(_scores(builder, query, key, _scale(call, query)), precision)


@lowers("AttentionValues", domain=INNER_DOMAIN)
def _flex_values(call: Call) -> Result:
    builder, shares, value = call.builder, _cached(call, 0), _cached(call, 1)
    return builder.cast(_weighted(builder, shares, value), value.dtype)


@lowers("RotaryEmbedding")
def _rotary(call: Call) -> Result:
    builder, source = call.builder, call.tensor(0)
    shape, token_axis = _split(call)
    dtype = wide_dtype(source.dtype, call.tensor(1).dtype, call.tensor(2).dtype)
    x = builder.reshape(builder.cast(source, dtype), shape)
    turned = call.number("rotary_embedding_dim", 0) or shape[3]
    if not 0 <= turned <= shape[3] or turned % 2:
        raise ShapeError(f"{turned} features of {shape[3]} cannot be rotated in pairs")
    half = turned // 2
    cosine, sine = (_angles(call, number, shape, token_axis, half, dtype) for number in (1, 2))
    step = 2 if call.number("interleaved", 0) else 1
    box = (*shape[:3], half)
    strides = (*strides_of(shape)[:3], step)
    starts = (0, 1 if step > 1 else half)
    first, second = (builder.view(x, box, strides, start) for start in starts)
    real = builder.sub(builder.mul(cosine, first), builder.mul(sine, second))
    imaginary = builder.add(builder.mul(sine, first), builder.mul(cosine, second))
    regions = [
        Region(box, View(0, strides_of(box)), View(start, strides), number)
        for number, start in enumerate(starts)
    ]
    rest = View(turned, strides_of(shape))
    regions.append(Region((*shape[:3], shape[3] - turned), rest, rest, 2))
    result = builder.raster([real, imaginary, x], shape, regions)
    return builder.cast(builder.reshape(result, source.shape), source.dtype)


def _split(call: Call) -> tuple[Shape, int]:
    # the shape with four axes, and the axis of the tokens
    shape = call.tensor(0).shape
    if len(shape) == 4:  # noqa: PLR2004  # batch, heads, tokens, features
        return shape, 2
    if len(shape) != 3:  # noqa: PLR2004  # batch, tokens, features of all heads
        raise ShapeError(f"shape {list(shape)} has neither 3 nor 4 axes")
    heads = call.number("num_heads")
    if heads < 1 or shape[2] % heads:
        raise ShapeError(f"{shape[2]} features in {heads} heads")
    return (*shape[:2], heads, shape[2] // heads), 1


def _angles(
    call: Call, number: int, shape: Shape, token_axis: int, half: int, dtype: DType
) -> Tensor:
    builder, cache, positions = call.builder, call.tensor(number), call.optional(3)
    batch, tokens = shape[0], shape[token_axis]
    if positions is not None:
        cache = _taken(builder, cache, positions, (batch, tokens))
    if cache.shape != (batch, tokens, half):
        raise ShapeError(
            f"input {number} gives {list(cache.shape)}, not {[batch, tokens, half]} angles"
        )
    axes = (batch, 1, tokens, half) if token_axis == 2 else (batch, tokens, 1, half)  # noqa: PLR2004
    return builder.cast(builder.reshape(cache, axes), dtype)


def _taken(builder: Builder, cache: Tensor, positions: Tensor, shape: Shape) -> Tensor:
    if cache.rank != 2 or positions.shape != shape:  # noqa: PLR2004  # positions and their angles
        raise ShapeError(
            f"positions of shape {list(positions.shape)} for angles of {list(cache.shape)}"
        )
    if not is_integer(positions.dtype):
        raise DTypeError(f"positions must be whole numbers, not {positions.dtype.name}")
    return take(builder, cache, builder.cast(positions, np.int64))
