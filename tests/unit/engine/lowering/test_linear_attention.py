"""Layers with a state: token by token as all at once, and what is refused."""

import numpy as np
import pytest

from walle_stream.errors import EngineError, LoweringError, ShapeError

_BATCH, _TOKENS, _HEADS, _GROUPS, _WIDTH, _VALUES = 2, 5, 4, 2, 3, 6


def _random(*shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def _given(rule, decay_width, rate_width):
    packed = [
        _random(_BATCH, _TOKENS, width)
        for width in (_HEADS * _WIDTH, _GROUPS * _WIDTH, _GROUPS * _VALUES)
    ]
    decay = -np.abs(_random(_BATCH, _TOKENS, decay_width)) if "gated" in rule else None
    rate = np.abs(_random(_BATCH, _TOKENS, rate_width)) if "delta" in rule else None
    return packed, decay, rate


def _wanted(packed, state, decay, rate):
    query, key, value = (each.astype(np.float64) for each in packed)
    output, state = np.zeros((_BATCH, _TOKENS, _HEADS, _VALUES)), state.astype(np.float64)
    for b, t, g in np.ndindex(_BATCH, _TOKENS, _GROUPS):
        k, v = (each[b, t].reshape(_GROUPS, -1)[g] for each in (key, value))
        if decay is not None:
            state[b, g] *= np.exp(decay[b, t].reshape(_GROUPS, -1)[g])[:, None]
        if rate is not None:
            v = (v - k @ state[b, g]) * rate[b, t, g if rate.shape[2] > 1 else 0]
        state[b, g] += np.outer(k, v)
        for head in range(g * 2, g * 2 + 2):
            output[b, t, head] = query[b, t].reshape(_HEADS, -1)[head] @ state[b, g] / 3**0.5
    return output.reshape(_BATCH, _TOKENS, -1), state


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("decay_width", [_GROUPS, _GROUPS * _WIDTH])
@pytest.mark.parametrize("rate_width", [1, _GROUPS])
def test_every_rule_of_update(run_node, rule, decay_width, rate_width):
    packed, decay, rate = _given(rule, decay_width, rate_width)
    state = _random(_BATCH, _GROUPS, _WIDTH, _VALUES)
    given = {"q_num_heads": _HEADS, "kv_num_heads": _GROUPS, "update_rule": rule.encode()}
    made = run_node("LinearAttention", [*packed, state, decay, rate], outputs=2, **given)
    for each, wanted in zip(made, _wanted(packed, state, decay, rate), strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-4, atol=1e-5)


def test_the_first_state_is_zero_and_values_may_have_no_width(run_node):
    x, given = np.ones((1, 2, 2), np.float32), {"q_num_heads": 1, "kv_num_heads": 1}
    output, state = run_node(
        "LinearAttention", [x, x, x], outputs=2, update_rule=b"linear", **given
    )
    np.testing.assert_allclose(output, np.array([[[2, 2], [4, 4]]]) / 2**0.5, rtol=1e-6)
    np.testing.assert_array_equal(state, np.full((1, 1, 2, 2), 2))
    output, _ = run_node(
        "LinearAttention", [x, x, x[..., :0]], outputs=2, update_rule=b"linear", **given
    )
    assert output.shape == (1, 2, 0)


def test_no_tokens_leave_the_state(run_node):
    x, state = np.zeros((2, 0, 4), np.float16), _random(2, 2, 2, 2)
    given = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": b"linear"}
    output, kept = run_node("LinearAttention", [x, x, x, state], outputs=2, **given)
    assert (output.shape, output.dtype) == ((2, 0, 4), np.float16)
    np.testing.assert_array_equal(kept, state)


@pytest.mark.parametrize("taps", [1, 2, 4, 7])
@pytest.mark.parametrize("activation", [b"none", b"silu"])
def test_a_convolution_goes_on_where_it_stopped(run_node, taps, activation):
    x, weight, bias = _random(2, 3, 5), _random(3, 1, taps), _random(3)
    given = {"outputs": 2, "activation": activation}
    whole, last = run_node("CausalConvWithState", [x, weight, bias], **given)
    wide = np.concatenate([np.zeros((2, 3, taps - 1)), x], 2)
    wanted = np.stack([(wide[..., t : t + taps] * weight[:, 0]).sum(-1) for t in range(5)], 2)
    wanted += bias[:, None]
    if activation == b"silu":
        wanted /= 1 + np.exp(-wanted)
    np.testing.assert_allclose(whole, wanted, rtol=1e-4, atol=1e-6)
    first, state = run_node("CausalConvWithState", [x[..., :2], weight, bias], **given)
    second, state = run_node("CausalConvWithState", [x[..., 2:], weight, bias, state], **given)
    np.testing.assert_allclose(np.concatenate([first, second], 2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state, last)
    np.testing.assert_array_equal(last, wide[..., 5:])


def test_a_convolution_of_nothing(run_node):
    x, weight = np.zeros((2, 3, 0), np.float32), np.ones((3, 1, 4), np.float32)
    output, state = run_node("CausalConvWithState", [x, weight], outputs=2)
    assert output.shape == (2, 3, 0)
    np.testing.assert_array_equal(state, np.zeros((2, 3, 3)))


_X = (1, 2, 4)


@pytest.mark.parametrize(
    ("operator", "shapes", "given", "error", "words"),
    [
        ("LinearAttention", [_X] * 3, {}, LoweringError, "input 4 is missing"),
        (
            "LinearAttention",
            [_X, _X, _X, (1, 2, 2, 3)],
            {"update_rule": b"linear"},
            ShapeError,
            "a state",
        ),
        ("LinearAttention", [_X, _X, _X, None, _X], {}, LoweringError, "input 5 is missing"),
        ("LinearAttention", [_X, _X, _X, None, (1, 2, 3), _X], {}, ShapeError, "a decay"),
        ("LinearAttention", [_X, _X, _X, None, _X, _X], {}, ShapeError, "a rate"),
        ("LinearAttention", [_X, _X, _X, None, (1, 3, 4), _X], {}, ShapeError, "query's tokens"),
        ("LinearAttention", [_X, (1, 2, 2), _X], {}, ShapeError, "2 wide, keys 1"),
        ("LinearAttention", [_X] * 3, {"q_num_heads": 3}, ShapeError, "3 heads"),
        ("LinearAttention", [_X] * 3, {"kv_num_heads": 0}, ShapeError, "for 0 of keys"),
        ("LinearAttention", [_X] * 3, {"update_rule": b"x"}, LoweringError, "'x'"),
        ("LinearAttention", [(1, 2, 4), (1, 3, 4), (1, 2, 4)], {}, ShapeError, "in heads"),
        ("LinearAttention", [(2, 4)] * 3, {}, ShapeError, "in heads"),
        ("CausalConvWithState", [(1, 2, 4), (2, 1)], {}, ShapeError, "a weight of"),
        ("CausalConvWithState", [(1, 2, 4), (2, 1, 0)], {}, ShapeError, "a weight of"),
        ("CausalConvWithState", [(1, 2, 4), (3, 1, 2)], {}, ShapeError, "for 2 channels"),
        ("CausalConvWithState", [(1, 2, 4), (2, 1, 2), (3,)], {}, ShapeError, "a bias of"),
        ("CausalConvWithState", [(1, 2, 4), (2, 1, 2), None, (1, 2, 2)], {}, ShapeError, "2 taps"),
        ("CausalConvWithState", [(1, 2, 4), (2, 1, 2)], {"activation": b"x"}, EngineError, "'x'"),
    ],
)
def test_bad_input_is_named(run_node, operator, shapes, given, error, words):
    inputs = [None if each is None else np.ones(each, np.float32) for each in shapes]
    heads = {"q_num_heads": 2, "kv_num_heads": 2} if operator == "LinearAttention" else {}
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **{**heads, **given})
