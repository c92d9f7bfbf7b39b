"""Attention of com.microsoft, against a plain softmax over the keys that each query sees."""

import numpy as np
import pytest

from walle_stream.errors import EngineError, LoweringError, ShapeError

MICROSOFT = {"domain": "com.microsoft", "version": 1}
_HIDDEN = -10000.0


def _random(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _close(made, wanted, tolerance=1e-5):
    np.testing.assert_allclose(
        made.astype(np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


def _split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3).astype(np.float64)


def _joined(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _attention(parts, *, allowed=True, bias=0.0, scale=None, cap=0.0, sink=None):
    query, key, value = parts
    shared = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each, shared, 1) for each in (key, value))
    scores = query @ key.swapaxes(-1, -2) * (scale or 1 / np.sqrt(query.shape[-1]))
    scores = cap * np.tanh(scores / cap) if cap else scores
    powers = np.exp(np.where(allowed, scores + bias, -np.inf))
    total = powers.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink.astype(np.float64))[:, None, None]
    return _joined(powers / total @ value)


def _causal(queries, keys, start=0):
    return np.arange(keys) <= np.arange(queries)[:, None] + start


_SHOWN = np.array([[0, 1, 1, 1], [1, 1, 0, 0]], bool)
_MASKS = {
    "none": (None, np.ones((2, 1, 1, 4), bool)),
    "ends": ([3, 1], np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)[:, None, None]),
    "ends and starts": ([3, 4, 1, 2], np.array([[0, 1, 1, 0], [0, 0, 1, 1]], bool)[:, None, None]),
    "keys": (_SHOWN, _SHOWN[:, None, None]),
    "queries and keys": (np.stack([_SHOWN] * 4, 1), _SHOWN[:, None, None]),
}


@pytest.mark.parametrize("mask", _MASKS)
@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("is_biased", [False, True])
def test_a_projection_and_its_attention(run_node, mask, is_causal, is_biased):
    given, shown = _MASKS[mask]
    x, weights, bias = _random(2, 4, 6), _random(6, 16), _random(16)
    added = _random(1, 2, 4, 4) if is_biased else None
    inputs = [x, weights, bias if is_biased else None, given, None, added]
    inputs[3] = None if given is None else np.array(given, np.int32)
    (made,) = run_node(
        "Attention", inputs, num_heads=2, unidirectional=is_causal, qkv_hidden_sizes=(4, 4, 8),
        scale=0.3, mask_filter_value=_HIDDEN, **MICROSOFT,
    )  # fmt: skip
    projected = x @ weights + (bias if is_biased else 0)
    parts = (_split(part, 2) for part in np.split(projected, [4, 8], axis=2))
    hiding = np.where(shown, 0, _HIDDEN) + (added if is_biased else 0)
    if is_causal and mask in {"keys", "queries and keys", "ends and starts"}:
        # a query that sees no key has shares of all that come before it
        hiding = hiding - np.where((shown & _causal(4, 4)).any(-1, keepdims=True), 0, _HIDDEN)
    allowed = _causal(4, 4) if is_causal else True
    _close(made, _attention(parts, allowed=allowed, bias=hiding, scale=0.3), 1e-3)


def test_a_projection_with_a_past(run_node):
    x, weights, past = _random(2, 3, 6), _random(6, 12), _random(2, 2, 2, 5, 2)
    made, present = run_node(
        "Attention", [x, weights, None, None, past], num_heads=2, unidirectional=1, outputs=2,
        **MICROSOFT,
    )  # fmt: skip
    query, key, value = (_split(part, 2) for part in np.split(x @ weights, 3, axis=2))
    both = np.concatenate([past, np.stack([key, value])], 3)
    _close(present, both)
    _close(made, _attention([query, *both], allowed=_causal(3, 8, 5)), 1e-4)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_a_quantised_projection_and_its_attention(run_node, has_zeros):
    random = np.random.default_rng(3)
    x = random.integers(0, 255, (2, 4, 6), np.uint8)
    w, scale = random.integers(-127, 127, (6, 12), np.int8), np.abs(_random(12)) * 0.01
    zeros = (np.uint8(9), random.integers(-9, 9, 12, np.int8)) if has_zeros else (None, None)
    past, ends = _random(2, 2, 2, 3, 2), np.array([7, 5], np.int32)
    inputs = [x, w, _random(12), np.float32(0.02), scale, ends, *zeros, past]
    made, present = run_node("QAttention", inputs, num_heads=2, outputs=2, **MICROSOFT)
    left, right = (each.astype(int) - (0 if zero is None else zero)
                   for each, zero in zip((x, w), zeros, strict=True))  # fmt: skip
    joined = left @ right * (0.02 * scale) + _random(12)
    query, key, value = (_split(part, 2) for part in np.split(joined, 3, axis=2))
    both = np.concatenate([past, np.stack([key, value])], 3)
    _close(present, both)
    allowed = np.arange(7) < ends[:, None, None, None]
    _close(made, _attention([query, *both], allowed=allowed), 1e-4)


def _packed(*parts):
    return np.stack([part.reshape(2, part.shape[1], 2, 4) for part in parts], 3)


@pytest.mark.parametrize("form", ["apart", "packed", "packed keys", "heads"])
@pytest.mark.parametrize("is_biased", [False, True])
def test_many_heads_in_every_form(run_node, form, is_biased):
    query, key, value = _random(2, 5, 8), _random(2, 5, 8) + 1, _random(2, 5, 8) - 1
    bias = _random(24) if is_biased else None
    inputs = {
        "apart": [query, key, value],
        "packed": [_packed(query, key, value), None, None],
        "packed keys": [query, _packed(key, value), None],
        "heads": [query, *(_split(x, 2).astype(np.float32) for x in (key, value))],
    }[form]
    (made,) = run_node("MultiHeadAttention", [*inputs, bias], num_heads=2, **MICROSOFT)
    parts = [query, key, value]
    if is_biased:
        added = np.split(bias, 3)
        parts = [x + own for x, own in zip(parts, added, strict=True)]
        parts = [parts[0], key, value] if form == "heads" else parts
    _close(made, _attention([_split(part, 2) for part in parts]), 1e-4)


def test_many_heads_with_a_past_and_a_mask(run_node):
    query, key, value = _random(2, 3, 8), _random(2, 3, 8) + 1, _random(2, 3, 8) - 1
    old = [_random(2, 2, 2, 4), _random(2, 2, 2, 4) + 1]
    shown = np.array([[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)
    bias = _random(1, 2, 3, 5)
    inputs = [query, key, value, None, shown, bias, *old]
    made = run_node("MultiHeadAttention", inputs, num_heads=2, outputs=4, **MICROSOFT)
    present = [
        np.concatenate([past, _split(x, 2)], 2)
        for past, x in zip(old, (key, value), strict=True)
    ]  # fmt: skip
    added = bias + np.where(shown, 0, _HIDDEN)[:, None, None]
    _close(made[0], _attention([_split(query, 2), *present], bias=added), 1e-4)
    _close(made[1], present[0])
    _close(made[2], present[1])
    _close(made[3], _split(query, 2) @ present[0].swapaxes(-1, -2) / 2 + added, 1e-4)


def _turned(x, places, angles, *, interleaved=0):
    # complex numbers are turned by a product; x is (batch, heads, tokens, width)
    half, turn = angles.shape[1], np.exp(1j * angles[places])[:, None]
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    made, product = x.astype(np.float64), (x[..., first] + 1j * x[..., second]) * turn
    made[..., first], made[..., second] = product.real, product.imag
    return made


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [[[4, 1, 2], [0, 3, 5]], [2]])
@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("is_packed", [False, True])
def test_pairs_are_turned_by_their_places(run_node, interleaved, places, width, is_packed):
    x, angles, places = _random(2, 2, 3, width), _random(6, 2), np.array(places)
    wanted_places = places if places.ndim == 2 else np.array([[2, 3, 4]] * 2)
    wanted = _turned(x, wanted_places, angles, interleaved=interleaved)
    heads = {"num_heads": 2, "rotary_embedding_dim": 4} if width > 4 else {}
    if is_packed:
        x, wanted = _joined(x), _joined(wanted)
    inputs = [x, places, np.cos(angles), np.sin(angles)]
    (made,) = run_node("RotaryEmbedding", inputs, interleaved=interleaved, **heads, **MICROSOFT)
    _close(made, wanted)


_STEPS = {
    "a prompt": (None, 3, [3, 2]),
    "a prompt into a buffer": (5, 3, [3, 2]),
    "a cache that grows": (4, 2, [6]),
    "a cache of several rows": (4, 1, [5, 3]),
    "a buffer": (7, 1, [5, 3]),
    "a buffer of one row": (7, 2, [5]),
}
"""Size of the cache, number of new tokens, and how many tokens of each row there are then."""


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize(
    "given", [{}, {"local_window_size": 2}, {"softcap": 2.0, "scale": 0.3}, {"smooth_softmax": 1}]
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_groups_of_queries_and_their_cache(run_node, step, given, is_turned):
    cached, tokens, lengths = _STEPS[step]
    batch, total, angles = len(lengths), max(lengths), _random(8, 2)
    query, key, value = (_random(batch, tokens, heads * 4) for heads in (4, 2, 2))
    value = value + 1
    past = [None if cached is None else _random(batch, 2, cached, 4) + n for n in range(2)]
    inputs = [query, key, value, *past, np.array(lengths, np.int32) - 1, np.int32(total)]
    inputs += [np.cos(angles), np.sin(angles)] if is_turned else []
    made = run_node(
        "GroupQueryAttention", inputs, num_heads=4, kv_num_heads=2, do_rotary=int(is_turned),
        outputs=3, **given, **MICROSOFT,
    )  # fmt: skip
    assert made[1].shape == made[2].shape == (batch, 2, max(total, cached or 0), 4)
    window = given.get("local_window_size", 99)
    for row, length in enumerate(lengths):
        start = 0 if total == tokens else length - tokens
        new = length - start
        parts = [_split(x[row : row + 1, :new], heads)
                 for x, heads in ((query, 4), (key, 2), (value, 2))]  # fmt: skip
        if is_turned:
            places = np.arange(start, length)[None]
            parts[:2] = [_turned(part, places, angles) for part in parts[:2]]
        whole = [
            part if old is None else np.concatenate([old[row : row + 1, :, :start], part], 2)
            for old, part in zip(past, parts[1:], strict=True)
        ]
        far = ~_causal(new, length, start - window)
        wanted = _attention(
            [parts[0], *whole], allowed=_causal(new, length, start) & far,
            scale=given.get("scale"), cap=given.get("softcap", 0.0),
            sink=np.zeros(4) if "smooth_softmax" in given else None,
        )  # fmt: skip
        _close(made[0][row : row + 1, :new], wanted, 1e-4)
        for number in range(2):
            _close(made[1 + number][row : row + 1, :, :length], whole[number])


def test_groups_of_queries_side_by_side_with_a_bias_and_sinks(run_node):
    joined, sink, bias = _random(2, 3, 16), _random(2), _random(1, 2, 3, 3)
    lengths, places = np.array([2, 1], np.int32), np.array([[1, 2, 3], [0, 1, 2]])
    angles = _random(5, 2)
    inputs = [joined, None, None, None, None, lengths, np.int32(3), np.cos(angles), np.sin(angles)]
    made = run_node(
        "GroupQueryAttention", [*inputs, places, bias, sink], num_heads=2, kv_num_heads=1,
        causal=0, do_rotary=1, rotary_interleaved=1, outputs=4, qk_output=2, **MICROSOFT,
    )  # fmt: skip
    parts = [_split(x, heads)
             for x, heads in zip(np.split(joined, [8, 12], 2), (2, 1, 1), strict=True)]  # fmt: skip
    parts[:2] = [_turned(part, places, angles, interleaved=1) for part in parts[:2]]
    allowed = np.arange(3) < np.array([3, 2])[:, None, None, None]
    wanted = _attention(parts, allowed=allowed, bias=bias, sink=sink)
    _close(made[0], wanted, 1e-4)
    assert made[3].shape == (2, 2, 3, 3)
    assert (made[3].sum(-1) < 1).all()


_X, _LENGTHS, _TOTAL = np.ones((2, 3, 8), np.float32), np.zeros(2, np.int32), np.int32(5)
_GROUPS = {"num_heads": 2, "kv_num_heads": 2}


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "error", "words"),
    [
        ("Attention", [_X, _X[0]], {"num_heads": 2}, EngineError, "matmul of shapes"),
        ("Attention", [_X[0], _X[0].T], {"num_heads": 1}, ShapeError, "3 axes"),
        ("Attention", [_X, np.ones((8, 7), np.float32)], {"num_heads": 1}, ShapeError, "split"),
        ("Attention", [_X, np.ones((8, 9), np.float32), None, None, _X], {"num_heads": 1},
         ShapeError, "a past"),
        ("Attention", [_X, _X[0].T], {"do_rotary": 1}, LoweringError, "'do_rotary'"),
        ("MultiHeadAttention", [_X], {"num_heads": 2}, LoweringError, "input 1 is missing"),
        ("MultiHeadAttention", [_X] * 3, {"num_heads": 3}, ShapeError, "in 3 heads"),
        ("MultiHeadAttention", [_X] * 3, {}, LoweringError, "'num_heads'"),
        ("MultiHeadAttention", [_X[0]] * 3, {"num_heads": 2}, ShapeError, "queries, keys and"),
        ("MultiHeadAttention", [_X] * 3 + [_X[0, 0]], {"num_heads": 2}, ShapeError, "be split"),
        ("MultiHeadAttention", [_X] * 3 + [None, np.ones(5, np.int32)], {"num_heads": 2},
         ShapeError, "a mask"),
        ("MultiHeadAttention", [np.ones((1, 2, 2, 2, 4), np.float32)], {"num_heads": 2},
         ShapeError, "2 parts"),
        ("MultiHeadAttention", [_X] * 3 + [None] * 5 + [_TOTAL], {"num_heads": 2},
         LoweringError, "input 8 is not supported"),
        ("GroupQueryAttention", [_X, _X, _X, None, None, _LENGTHS], _GROUPS,
         LoweringError, "input 6 is missing"),
        ("GroupQueryAttention", [_X, _X, _X, None, None, _LENGTHS, _TOTAL], _GROUPS,
         LoweringError, "input 3 is missing"),
        ("GroupQueryAttention", [_X, _X, _X, _X, None, _LENGTHS, _TOTAL], _GROUPS,
         ShapeError, "the past keys"),
        ("GroupQueryAttention", [_X, _X], _GROUPS, ShapeError, "3 axes each"),
        ("GroupQueryAttention", [_X], {**_GROUPS, "sliding_window_cache": 1},
         LoweringError, "'sliding_window_cache'"),
        ("RotaryEmbedding", [_X[0], _LENGTHS[:1], _X[0], _X[0]], {}, ShapeError, "3 nor 4"),
    ],
)  # fmt: skip
def test_bad_input_is_named(run_node, operator, inputs, given, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given, **MICROSOFT)
