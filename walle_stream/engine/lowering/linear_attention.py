"""Layers with a state that passes from token to token: LinearAttention, CausalConvWithState."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Shape, strides_of
from walle_stream.errors import ShapeError

_RULES: Final[Mapping[str, tuple[bool, bool]]] = {
    "linear": (False, False), "gated": (True, False),
    "delta": (False, True), "gated_delta": (True, True),
}  # fmt: skip
"""Whether a rule lets the state decay, and whether it subtracts the state's own prediction."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    tokens: int
    heads: int
    """Heads of queries; ``heads / groups`` consecutive ones share the state of one head of keys."""
    groups: int
    """Heads of keys and values."""
    width: int
    value_width: int

    @property
    def state(self) -> Shape:
        return (self.batch, self.groups, self.width, self.value_width)


@lowers("LinearAttention")
def _linear_attention(call: Call) -> Result:
    decays, corrects = _RULES[call.choice("update_rule", _RULES, "gated_delta")]
    builder, sizes = call.builder, _sizes(call)
    tensors = [call.optional(number) for number in range(6)]
    dtype = wide_dtype(*(tensor.dtype for tensor in tensors if tensor is not None))
    scale = call.real("scale", 0.0) or 1 / sqrt(sizes.width)
    query = builder.mul(_packed(call, 0, dtype, sizes), scale)
    key, value = _packed(call, 1, dtype, sizes), _packed(call, 2, dtype, sizes)
    decay = _packed(call, 4, dtype, sizes) if decays else None
    rate = _packed(call, 5, dtype, sizes) if corrects else None
    if decay is not None:
        if decay.shape[2] not in {sizes.groups * sizes.width, sizes.groups}:
            raise ShapeError(f"a decay of shape {list(decay.shape)}")
        decay = builder.exp(decay)
    if rate is not None and rate.shape[2] not in {sizes.groups, 1}:
        raise ShapeError(f"a rate of shape {list(rate.shape)}")
    state = call.optional(3)
    if state is None:
        state = builder.broadcast(builder.constant(np.zeros((), dtype)), sizes.state)
    elif state.shape != sizes.state:
        raise ShapeError(f"a state of shape {list(state.shape)}, not {list(sizes.state)}")
    state = builder.cast(state, dtype)
    result = [builder.constant(np.zeros((sizes.batch, 0, sizes.heads * sizes.value_width), dtype))]
    for number in range(sizes.tokens):
        keys = _token(builder, key, number, (sizes.groups, sizes.width, 1))
        added = _token(builder, value, number, (sizes.groups, 1, sizes.value_width))
        if decay is not None:
            inner = decay.shape[2] // sizes.groups
            state = builder.mul(state, _token(builder, decay, number, (sizes.groups, inner, 1)))
        if rate is not None:
            row = builder.reshape(keys, (sizes.batch, sizes.groups, 1, sizes.width))
            weight = _token(builder, rate, number, (rate.shape[2], 1, 1))
            added = builder.mul(builder.sub(added, builder.matmul(row, state)), weight)
        state = builder.add(state, builder.mul(keys, added))
        shared = sizes.heads // sizes.groups
        queries = _token(builder, query, number, (sizes.groups, shared, sizes.width))
        row_of_values = builder.matmul(queries, state)
        result.append(
            builder.reshape(row_of_values, (sizes.batch, 1, sizes.heads * sizes.value_width))
        )
    output = moves.concat(builder, result[1:] or result, 1)
    kept = call.tensor(3).dtype if call.has(3) else call.tensor(0).dtype
    return builder.cast(output, call.tensor(0).dtype), builder.cast(state, kept)


def _sizes(call: Call) -> _Sizes:
    heads, groups = call.number("q_num_heads"), call.number("kv_num_heads")
    if groups < 1 or heads < 1 or heads % groups:
        raise ShapeError(f"{heads} heads of queries for {groups} of keys")
    shapes = [call.tensor(number).shape for number in range(3)]
    for shape, count in zip(shapes, (heads, groups, groups), strict=True):
        if len(shape) != 3 or shape[:2] != shapes[0][:2] or shape[2] % count:  # noqa: PLR2004
            raise ShapeError(f"shapes {', '.join(str(list(item)) for item in shapes)} in heads")
    widths = [shapes[0][2] // heads, shapes[1][2] // groups, shapes[2][2] // groups]
    if widths[0] != widths[1] or not widths[0]:
        raise ShapeError(f"queries are {widths[0]} wide, keys {widths[1]}")
    batch, tokens = shapes[0][:2]
    return _Sizes(batch, tokens, heads, groups, widths[1], widths[2])


def _packed(call: Call, number: int, dtype: DType, sizes: _Sizes) -> Tensor:
    x = call.tensor(number)
    if x.rank != 3 or x.shape[:2] != (sizes.batch, sizes.tokens):  # noqa: PLR2004  # and a width
        raise ShapeError(f"input {number} of shape {list(x.shape)} must have the query's tokens")
    return call.builder.cast(x, dtype)


def _token(builder: Builder, x: Tensor, number: int, shape: Shape) -> Tensor:
    batch, tokens, width = x.shape
    strides = (tokens * width, *strides_of(shape))
    return builder.view(x, (batch, *shape), strides, number * width)


@lowers("CausalConvWithState")
def _causal_convolution(call: Call) -> Result:
    builder, x, weight = call.builder, call.tensor(0), call.tensor(1)
    if x.rank != 3 or weight.rank != 3:  # noqa: PLR2004  # batch, channels, length
        raise ShapeError(f"an input of {list(x.shape)}, a weight of {list(weight.shape)}")
    batch, channels, length = x.shape
    taps = weight.shape[2]
    if weight.shape != (channels, 1, taps) or not taps:
        raise ShapeError(f"a weight of shape {list(weight.shape)} for {channels} channels")
    activation = call.choice("activation", ("none", "silu", "swish"), "none")
    state = call.optional(3)
    if state is None:
        row = moves.pad(builder, x, (0, 0, taps - 1), (0, 0, 0), 0.0)
    elif state.shape != (batch, channels, taps - 1):
        raise ShapeError(f"a state of shape {list(state.shape)} for {taps} taps")
    else:
        row = moves.concat(builder, [state, x], 2)
    dtype = wide_dtype(x.dtype, weight.dtype)
    result = _convolved(builder, builder.cast(row, dtype), builder.cast(weight, dtype), length)
    if call.has(2):
        if call.tensor(2).shape != (channels,):
            raise ShapeError(f"a bias of shape {list(call.tensor(2).shape)}")
        bias = builder.reshape(builder.cast(call.tensor(2), dtype), (channels, 1))
        result = builder.add(result, bias)
    if activation != "none":
        exponential = builder.exp(builder.neg(result))
        result = builder.div(result, builder.add(exponential, 1.0))
    kept = moves.slice_axis(builder, row, 2, length, length + taps - 1)
    return builder.cast(result, x.dtype), kept


def _convolved(builder: Builder, row: Tensor, weight: Tensor, length: int) -> Tensor:
    # overlapping windows are a view of the row; each is multiplied by the taps of its channel
    batch, channels, width = row.shape
    taps = weight.shape[2]
    shape = (batch, channels, length, taps)
    windows = builder.view(row, shape, (channels * width, width, 1, 1))
    result = builder.matmul(windows, builder.reshape(weight, (1, channels, taps, 1)))
    return builder.reshape(result, shape[:3])
