"""Attention of com.microsoft, over the rules of ONNX's Attention and RotaryEmbedding."""

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.attention import split_heads
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.fused_layers import MICROSOFT
from walle_stream.engine.lowering.precision import require_floating
from walle_stream.engine.lowering.products import multiply
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import INT64, check_table
from walle_stream.errors import LoweringError, ShapeError

_HEADS_RANK: Final = 4
"""Axes of ``(batch, heads, tokens, width)``; without this split the heads are side by side."""

_PACKED_RANK: Final = 5
"""Axes of ``(batch, tokens, heads, parts, width)``: keys and values, perhaps with queries."""

_NO_INPUT: Final = 99
"""The number of an input that no node has."""

_MASKED: Final = 2
_SHARES: Final = 3
"""Values of ``qk_matmul_output_mode`` of ONNX's Attention: behind the mask, behind the softmax."""


def _refuse(call: Call, inputs: Sequence[int], attributes: Sequence[str] = ()) -> None:
    for number in inputs:
        if call.has(number):
            raise LoweringError(f"input {number} is not supported")
    for name in attributes:
        if call.number(name, 0):
            raise LoweringError(f"attribute {name!r} is not supported")


@lowers("RotaryEmbedding", domain=MICROSOFT)
def _rotary(call: Call) -> Result:
    builder, x, places = call.builder, call.tensor(0), call.tensor(1)
    if x.rank not in {3, _HEADS_RANK}:
        raise ShapeError(f"shape {list(x.shape)} has neither 3 nor 4 axes")
    batch, tokens = x.shape[0], x.shape[-2]
    if places.rank < 2:  # noqa: PLR2004  # the place of the first token instead of all
        places = builder.add(builder.cast(places, INT64), builder.constant(np.arange(tokens)))
        places = builder.broadcast(places, (batch, tokens))
    return _turned(call, x, (2, 3), places, call.number("num_heads", 0), "interleaved")


def _turned(
    call: Call, x: Tensor, angles: tuple[int, int], places: Tensor, heads: int, flag: str
) -> Tensor:
    # without a number of heads each is as wide as what is turned
    cosine, sine = (call.tensor(number) for number in angles)
    width = 2 * cosine.shape[-1] if cosine.rank else 0
    result: Tensor = call.apply(
        "RotaryEmbedding", x, cosine, sine, places,
        num_heads=heads or x.shape[-1] // (width or 1), rotary_embedding_dim=width,
        interleaved=call.number(flag, 0),
    )  # fmt: skip
    return result


@lowers("Attention", domain=MICROSOFT)
def _attention(call: Call) -> Result:
    _refuse(call, (6,), ("do_rotary", "past_present_share_buffer"))
    joined = multiply(call.builder, require_floating(call.tensor(0)), call.tensor(1))
    if call.has(2):
        joined = call.builder.add(joined, call.builder.broadcast(call.tensor(2), joined.shape))
    return _self_attended(call, joined, (3, 5), call.optional(4))


@lowers("QAttention", domain=MICROSOFT)
def _quantized_attention(call: Call) -> Result:
    _refuse(call, (), ("do_rotary", "past_present_share_buffer"))
    joined = call.apply("MatMulIntegerToFloat", *(
        call.optional(number) for number in (0, 1, 3, 4, 6, 7, 2)
    ), domain=MICROSOFT)  # fmt: skip
    return _self_attended(call, joined, (5, _NO_INPUT), call.optional(8))


def _self_attended(
    call: Call, joined: Tensor, masks: tuple[int, int], cache: Tensor | None
) -> Result:
    # queries, keys and values are behind each other; the cache has past keys, then values
    builder = call.builder
    past: list[Tensor | None] = [None, None]
    if joined.rank != 3:  # noqa: PLR2004  # batch, tokens, features
        raise ShapeError(f"input 0 of shape {list(call.tensor(0).shape)} does not have 3 axes")
    parts = _split(builder, joined, call.list("qkv_hidden_sizes") or (joined.shape[2] // 3,) * 3)
    if cache is not None:
        if cache.rank != _PACKED_RANK or cache.shape[0] != 2:  # noqa: PLR2004  # keys and values
            raise ShapeError(f"a past of shape {list(cache.shape)}")
        past = [*_apart(builder, cache)]
    y, *present, _ = _attended(call, parts, masks, past)
    # a head of keys may be wider than one of values if no present is wanted
    return y, moves.stack(builder, present, 0) if call.wants(1) else None


def _split(builder: Builder, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    # queries, keys and values lie behind each other
    if len(sizes) != 3 or min(sizes) < 0 or x.shape[-1:] != (sum(sizes),):  # noqa: PLR2004
        raise ShapeError(f"shape {list(x.shape)} cannot be split into {list(sizes)} features")
    ends = accumulate(sizes)
    return [
        moves.slice_axis(builder, x, x.rank - 1, end - size, end)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _apart(builder: Builder, x: Tensor) -> list[Tensor]:
    return [builder.reshape(part, x.shape[1:]) for part in moves.unjoined(builder, x, 0)]


def _attended(
    call: Call, parts: Sequence[Tensor], masks: tuple[int, int], past: Sequence[Tensor | None],
    **given: Any,
) -> Any:  # fmt: skip
    # the outputs of ONNX's Attention; masks are the inputs that hide keys, and that add to scores
    heads, key = call.number("num_heads"), parts[1]
    keys = key.shape[2 if key.rank == _HEADS_RANK else 1] + _size(past)
    terms = [_hiding(call, masks[0], parts[0], keys), call.optional(masks[1])]
    mask = [term for term in terms if term is not None]
    return call.apply(
        "Attention", *parts, reduce(call.builder.add, mask) if mask else None, *past, outputs=4,
        q_num_heads=heads, kv_num_heads=heads, is_causal=call.number("unidirectional", 0),
        **_scale(call), **given,
    )  # fmt: skip


def _scale(call: Call) -> dict[str, Any]:
    scale = call.real("scale", 0.0)
    return {"scale": scale} if scale else {}


def _hiding(call: Call, number: int, query: Tensor, keys: int) -> Tensor | None:
    # what the scores of hidden keys get: a number that leaves shares to a query that sees nothing
    builder, mask, batch = call.builder, call.optional(number), query.shape[0]
    if mask is None:
        return None
    columns = builder.constant(np.arange(keys))
    if mask.rank == 1 and mask.size in {batch, 2 * batch}:
        # one end of each row, then perhaps one start
        bounds = builder.reshape(builder.cast(mask, INT64), (mask.size, 1, 1, 1))
        shown = builder.less(columns, moves.slice_axis(builder, bounds, 0, 0, batch))
        if mask.size > batch:
            starts = moves.slice_axis(builder, bounds, 0, batch, 2 * batch)
            shown = builder.logical_and(shown, builder.less_equal(starts, columns))
    elif mask.rank in {2, 3}:
        queries = mask.shape[1:-1] or (1,)
        shown = builder.reshape(builder.less(0, mask), (batch, 1, *queries, keys))
    else:
        raise ShapeError(f"a mask of shape {list(mask.shape)} for {batch} rows of {keys} keys")
    hidden = np.asarray(call.real("mask_filter_value", -10000.0), query.dtype)
    return builder.select(shown, 0.0, builder.constant(hidden))


@lowers("MultiHeadAttention", domain=MICROSOFT)
def _multi_head(call: Call) -> Result:
    _refuse(call, (8, 9))
    builder, query = call.builder, require_floating(call.tensor(0))
    if query.rank == _PACKED_RANK:
        parts = _unpacked(builder, query, 3)
    elif call.tensor(1).rank == _PACKED_RANK:
        parts = [query, *_unpacked(builder, call.tensor(1), 2)]
    else:
        parts = [query, call.tensor(1), call.tensor(2)]
    if any(part.rank not in {3, _HEADS_RANK} for part in parts):
        raise ShapeError(f"queries, keys and values of {[list(part.shape) for part in parts]}")
    if call.has(3):
        # keys and values whose heads are split have their bias
        widths = [prod(part.shape[2:] if part.rank == 3 else part.shape[1::2]) for part in parts]  # noqa: PLR2004
        biases = _split(builder, call.tensor(3), widths)
        parts = [
            part if part.rank == _HEADS_RANK else builder.add(part, bias)
            for part, bias in zip(parts, biases, strict=True)
        ]
    past = [call.optional(6), call.optional(7)]
    return tuple(_attended(call, parts, (4, 5), past, qk_matmul_output_mode=_MASKED))


def _unpacked(builder: Builder, x: Tensor, count: int) -> list[Tensor]:
    batch, tokens, heads, parts, width = x.shape
    if parts != count:
        raise ShapeError(f"{parts} parts of shape {list(x.shape)}, not {count}")
    moved = moves.transpose(builder, x, (3, 0, 1, 2, 4))
    return _apart(builder, builder.reshape(moved, (parts, batch, tokens, heads * width)))


_SCALES, _QUERY_LENGTHS = 12, 16
"""The first and the last input that narrow caches and padded chunks of queries need."""


@lowers("GroupQueryAttention", domain=MICROSOFT)
def _group_query(call: Call) -> Result:
    _refuse(call, range(_SCALES, _QUERY_LENGTHS + 1), ("sliding_window_cache",))
    builder, (query, key, value) = call.builder, _grouped(call)
    batch, tokens, _ = query.shape
    past = [call.optional(number) for number in (3, 4)]
    cached, total = _size(past), int(call.builder.value(call.scalar(6, INT64)))
    is_first, grows = total == tokens, batch == 1 and total == cached + tokens
    lengths = builder.reshape(builder.add(builder.cast(call.tensor(5), INT64), 1), (batch,))
    # the place of the first query of each row: known for a first prompt, and where the cache of
    # a single row grows by what is new
    known = builder.constant(np.full(batch, 0 if is_first else cached))
    starts = known if is_first or grows else builder.sub(lengths, tokens)
    if call.number("do_rotary", 0):
        places = call.optional(9)
        if places is None:
            first = builder.reshape(starts, (batch, 1))
            places = builder.add(first, builder.constant(np.arange(tokens)))
        heads = [call.number(name) for name in ("num_heads", "kv_num_heads")]
        query, key = (
            _turned(call, x, (7, 8), places, count, "rotary_interleaved")
            for x, count in zip((query, key), heads, strict=True)
        )
    if is_first or grows:
        old = [None, None] if is_first else past
        limits = None if call.number("causal", 1) else lengths
        y, *present, scores = _attended_in_groups(call, [query, key, value], old, limits)
        if is_first and cached > tokens:
            # the cache is a buffer that the prompt fills from the front
            present = [
                moves.concat(builder, [x, moves.slice_axis(builder, whole, 2, tokens, cached)], 2)
                for x, whole in zip(present, past, strict=True)
                if whole is not None
            ]
    else:
        present = [
            _put_behind(call, whole, x, starts, max(total, cached))
            for whole, x in zip(past, (key, value), strict=True)
        ]
        y, _, _, scores = _attended_in_groups(call, [query, *present], [None, None], lengths)
    return y, *present, scores


def _grouped(call: Call) -> list[Tensor]:
    # queries, keys and values side by side in one tensor, or each in its own
    builder, query = call.builder, require_floating(call.tensor(0))
    parts = [query, call.optional(1), call.optional(2)]
    if not call.has(1):
        heads, groups = call.number("num_heads"), call.number("kv_num_heads")
        width = query.shape[-1] // max(heads + 2 * groups, 1) if query.rank else 0
        parts = [*_split(builder, query, [heads * width, groups * width, groups * width])]
    found = [part for part in parts if part is not None and part.rank == 3]  # noqa: PLR2004
    if len(found) != 3:  # noqa: PLR2004  # queries, keys, values
        raise ShapeError("queries, keys and values do not have 3 axes each")
    return found


def _size(past: Sequence[Tensor | None]) -> int:
    # the number of tokens that a cache has room for
    sizes = {0 if part is None else part.shape[2] if part.rank == _HEADS_RANK else -1
             for part in past}  # fmt: skip
    if len(sizes) != 1 or -1 in sizes:
        raise ShapeError("the past keys and values differ in length, or do not have 4 axes each")
    return sizes.pop()


def _attended_in_groups(
    call: Call, parts: Sequence[Tensor], past: Sequence[Tensor | None], lengths: Tensor | None
) -> Any:
    mode, window = call.number("qk_output", 0), call.number("local_window_size", -1)
    sink = call.optional(11)
    if sink is None and call.number("smooth_softmax", -1) > 0:
        heads = check_table((call.number("num_heads"),), "the heads")
        sink = call.builder.constant(np.zeros(heads, parts[0].dtype))
    y, *others, scores = call.apply(
        "Attention", *parts, call.optional(10), *past, lengths, sink, outputs=4,
        q_num_heads=call.number("num_heads"), kv_num_heads=call.number("kv_num_heads"),
        is_causal=call.number("causal", 1), softcap=call.real("softcap", 0.0),
        left_window_size=window - 1 if window > 0 else -1,
        qk_matmul_output_mode=_SHARES if mode > 1 else _MASKED, **_scale(call),
    )  # fmt: skip
    return y, *others, scores if mode else None


def _put_behind(
    call: Call, past: Tensor | None, new: Tensor, starts: Tensor, length: int
) -> Tensor:
    # a cache of a length with what is new behind the first elements, as many as ``starts`` says
    builder, groups, tokens = call.builder, call.number("kv_num_heads"), new.shape[1]
    if past is None:
        raise LoweringError("input 3 is missing, but some tokens are left out")
    heads = split_heads(builder, new, groups)
    both = moves.concat(builder, [past, heads], 2)
    batch, _, rows, width = both.shape
    columns = builder.constant(np.arange(check_table((length,), "a cache")[0]))
    behind = builder.sub(columns, builder.reshape(starts, (batch, 1)))
    added = builder.add(builder.clip(behind, 0, tokens - 1), rows - tokens)
    row = builder.select(builder.less(behind, 0), columns, added)
    firsts = np.arange(batch * groups).reshape(batch, groups, 1) * rows
    address = builder.add(builder.reshape(row, (batch, 1, length)), builder.constant(firsts))
    return take(builder, builder.reshape(both, (batch * groups * rows, width)), address)
