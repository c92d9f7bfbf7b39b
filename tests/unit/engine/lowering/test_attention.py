import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.graph import Graph, Node
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


def _random(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _attention(query, key, value, allowed=True, bias=0.0, cap=0.0):
    shared = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each.astype(np.float64), shared, 1) for each in (key, value))
    scores = query.astype(np.float64) @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1])
    if cap:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(allowed, scores + bias, -np.inf)
    powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ value


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_heads_share_keys(run_node, dtype, heads):
    shapes = [(2, heads[0], 3, 8), (2, heads[1], 5, 8), (2, heads[1], 5, 6)]
    given = [_random(*shape, dtype=dtype) for shape in shapes]
    (made,) = run_node("Attention", given)
    assert made.dtype == dtype
    tolerance = {2: 2**-7, 4: 1e-5, 8: 1e-12}[made.dtype.itemsize]
    np.testing.assert_allclose(
        made.astype(np.float64), _attention(*given), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("windows", [(-1, -1), (1, -1), (-1, 0), (2, 1), (0, 0), (9, 9)])
@pytest.mark.parametrize("cache", ["none", "past", "outer"])
def test_masks_join(run_node, is_causal, windows, cache):
    query, key, value = _random(2, 2, 3, 4), _random(2, 2, 5, 4), _random(2, 2, 5, 4)
    bias, lengths, inputs = _random(2, 1, 3, 5), np.array([5, 2]), []
    offset = {"none": 0, "past": 2, "outer": (lengths - 3)[:, None, None, None]}[cache]
    columns, rows = np.arange(5), np.arange(3)[:, None] + offset
    allowed = np.ones((2, 1, 3, 5), bool)
    if cache == "outer":
        allowed &= columns < lengths[:, None, None, None]
        inputs = [query, key, value, bias, None, None, lengths]
    elif cache == "past":
        inputs = [query, key[:, :, 2:], value[:, :, 2:], bias, key[:, :, :2], value[:, :, :2]]
    else:
        inputs = [query, key, value, bias]
    if is_causal:
        allowed = allowed & (columns <= rows)
    if windows[0] >= 0:
        allowed = allowed & (columns >= rows - windows[0])
    if windows[1] >= 0:
        allowed = allowed & (columns <= rows + windows[1])
    left, right = windows
    given = {"is_causal": is_causal, "left_window_size": left, "right_window_size": right}
    made = run_node("Attention", inputs, outputs=3, **given)
    wanted = _attention(query, key, value, allowed, bias)
    np.testing.assert_allclose(made[0], wanted, rtol=1e-4, atol=1e-5)
    if cache == "past":
        np.testing.assert_array_equal(made[1], key)
        np.testing.assert_array_equal(made[2], value)


def test_a_mask_of_bool_that_is_short_hides_what_it_lacks(run_node):
    query, key = _random(1, 2, 3, 4), _random(1, 2, 5, 4)
    mask = np.array([[True, False, True]])
    (made,) = run_node("Attention", [query, key, key, mask])
    wanted = _attention(query, key, key, np.array([True, False, True, False, False]))
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_heads_beside_each_other(run_node):
    query, key, value = _random(2, 3, 16), _random(2, 5, 8), _random(2, 5, 6)
    (made,) = run_node("Attention", [query, key, value], q_num_heads=4, kv_num_heads=2, softcap=2.0)
    split = [
        each.reshape(2, each.shape[1], heads, -1).transpose(0, 2, 1, 3)
        for each, heads in ((query, 4), (key, 2), (value, 2))
    ]
    wanted = _attention(*split, cap=2.0).transpose(0, 2, 1, 3).reshape(2, 3, 12)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_gives_zeros(run_node):
    query = _random(1, 1, 2, 4)
    mask = np.array([[True, True], [False, False]])
    made = run_node("Attention", [query, query, query, mask], outputs=4, qk_matmul_output_mode=3)
    np.testing.assert_array_equal(made[0][0, 0, 1], np.zeros(4))
    np.testing.assert_array_equal(made[3][0, 0, 1], np.zeros(2))


def test_nothing_to_attend_to(run_node):
    query, key = _random(1, 2, 3, 4), np.zeros((1, 2, 0, 4), np.float32)
    np.testing.assert_array_equal(
        run_node("Attention", [query, key, key])[0], np.zeros((1, 2, 3, 4))
    )
    empty = np.zeros((0, 2, 3, 4), np.float32)
    assert run_node("Attention", [empty, empty, empty], is_causal=1)[0].shape == (0, 2, 3, 4)


def test_few_steps_without_a_mask(count_steps):
    x = _random(1, 2, 3, 4)
    assert count_steps("Attention", [x, x, x]) == 8


def _tripled(name="x"):
    nodes = (Node("Mul", (name, "three"), ("out",), version=14),)
    return Graph("mod", {name: None}, {"out": None}, nodes, {"three": np.float32(3)})


def test_graphs_of_flex_attention_change_scores_and_shares(run_node):
    query, key, value = _random(1, 4, 3, 4), _random(1, 2, 5, 4), _random(1, 2, 5, 6)
    flex = {"version": 1, "domain": "ai.onnx.preview"}
    (made,) = run_node(
        "FlexAttention", [query, key, value], score_mod=_tripled(), prob_mod=_tripled("y"), **flex
    )
    wanted = 3 * _attention(query * 3, key, value)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    (made,) = run_node("FlexAttention", [query, key, value], **flex)
    np.testing.assert_allclose(made, _attention(query, key, value), rtol=1e-4, atol=1e-5)


def test_a_graph_of_flex_attention_sees_the_precision_that_is_asked_for(run_node):
    nodes = (Node("Add", ("x", "one"), ("out",), version=14),)
    graph = Graph("mod", {"x": None}, {"out": None}, nodes, {"one": np.float64(1)})
    x = _random(1, 1, 2, 4)
    given = {"version": 1, "domain": "ai.onnx.preview", "score_mod": graph}
    (made,) = run_node("FlexAttention", [x, x, x], softmax_precision=11, **given)
    np.testing.assert_allclose(made, _attention(x, x, x), rtol=1e-5)
    with pytest.raises(DTypeError, match="float32 and float64"):
        run_node("FlexAttention", [x, x, x], **given)


_Q = (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("shapes", "given", "error", "words"),
    [
        ([_Q, _Q], {}, LoweringError, "input 2 is missing"),
        ([_Q, (1, 3, 3, 4), _Q], {}, ShapeError, "queries of shape"),
        ([_Q, (1, 2, 3, 5), _Q], {}, ShapeError, "queries of shape"),
        ([_Q, _Q, (1, 2, 4, 4)], {}, ShapeError, "values of"),
        ([(3, 4)] * 3, {}, ShapeError, "neither 3 nor 4 axes"),
        ([(1, 3, 4)] * 3, {}, LoweringError, "'q_num_heads'"),
        ([(1, 3, 4)] * 3, {"q_num_heads": 3, "kv_num_heads": 1}, ShapeError, "in 3 heads"),
        ([_Q, _Q, _Q, (5, 3)], {}, ShapeError, "cannot be broadcast"),
        ([_Q, _Q, _Q, None, _Q], {}, LoweringError, "only one of past_key"),
        ([_Q, _Q, _Q, None, (1, 2, 3), _Q], {}, ShapeError, "does not have 4 axes"),
        ([_Q] * 3, {"qk_matmul_output_mode": 4}, LoweringError, "0 to 3 are known"),
        ([_Q] * 3, {"softmax_precision": 7}, LoweringError, "element type 7"),
        ([_Q, _Q, _Q, None, None, None, (2,)], {}, ShapeError, "lengths of shape"),
        ([_Q] * 4, {"domain": "ai.onnx.preview"}, LoweringError, "4 inputs"),
        ([_Q] * 3, {"domain": "ai.onnx.preview", "score_mod": 3}, LoweringError, "is not a graph"),
    ],
)
def test_bad_input_is_named(run_node, shapes, given, error, words):
    operator = "FlexAttention" if "domain" in given else "Attention"
    inputs = [None if each is None else np.ones(each, np.float32) for each in shapes]
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given)


def test_a_mask_of_bool_is_spread_to_scores_and_no_further(run_node):
    x = np.ones(_Q, np.float32)
    with pytest.raises(ShapeError, match="a mask of"):
        run_node("Attention", [x, x, x, np.zeros((2, 1, 3, 3), bool)])


def test_queries_are_floating_numbers(run_node):
    with pytest.raises(EngineError, match="not int64"):
        run_node("Attention", [np.ones(_Q, np.int64)] * 3)


def _turned(x, angles, interleaved, turned):
    # complex numbers are turned by a product
    made = x.astype(np.complex128)
    half = turned // 2
    first = slice(0, turned, 2) if interleaved else slice(0, half)
    second = slice(1, turned, 2) if interleaved else slice(half, turned)
    product = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)
    made[..., first], made[..., second] = product.real, product.imag
    return made.real


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 2, 4, 6])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("has_places", [False, True])
def test_pairs_are_turned(run_node, interleaved, turned, is_packed, has_places):
    random, half = np.random.default_rng(0), (turned or 6) // 2
    x = random.standard_normal((2, 3, 4, 6)).astype(np.float32)
    cache = random.uniform(0, 6, (9, half) if has_places else (2, 4, half)).astype(np.float32)
    places = random.integers(0, 9, (2, 4))
    angles = (cache[places] if has_places else cache)[:, None]
    wanted = _turned(x, angles, interleaved, turned or 6)
    given = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    if is_packed:
        given["num_heads"] = 3
        x, wanted = (each.transpose(0, 2, 1, 3).reshape(2, 4, 18) for each in (x, wanted))
    inputs = [x, np.cos(cache), np.sin(cache), *([places] if has_places else [])]
    (made,) = run_node("RotaryEmbedding", inputs, **given)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_is_turned(run_node):
    x, cache = np.zeros((0, 3, 4, 6), np.float16), np.zeros((0, 4, 3), np.float16)
    (made,) = run_node("RotaryEmbedding", [x, cache, cache])
    assert (made.shape, made.dtype) == (x.shape, np.float16)


_X = (2, 3, 4, 6)


@pytest.mark.parametrize(
    ("shapes", "given", "error", "words"),
    [
        ([(3, 4), (2, 4, 3), (2, 4, 3)], {}, ShapeError, "neither 3 nor 4 axes"),
        ([(2, 4, 18), (2, 4, 3), (2, 4, 3)], {}, EngineError, "'num_heads'"),
        ([(2, 4, 18), (2, 4, 3), (2, 4, 3)], {"num_heads": 4}, ShapeError, "in 4 heads"),
        ([_X, (2, 4, 3), (2, 4, 3)], {"rotary_embedding_dim": 3}, ShapeError, "in pairs"),
        ([_X, (2, 4, 3), (2, 4, 3)], {"rotary_embedding_dim": 8}, ShapeError, "in pairs"),
        ([_X, (2, 4, 2), (2, 4, 2)], {}, ShapeError, "input 1 gives"),
        ([_X, (2, 4, 3), (2, 3, 3)], {}, ShapeError, "input 2 gives"),
        ([_X, (9, 3), (9, 3), (2, 4)], {}, DTypeError, "positions must be whole"),
        ([_X, (9, 3), (9, 3), (4, 2)], {}, ShapeError, "positions of shape"),
    ],
)
def test_bad_input_is_named_of_rotary(run_node, shapes, given, error, words):
    with pytest.raises(error, match=words):
        run_node("RotaryEmbedding", [np.ones(each, np.float32) for each in shapes], **given)


def test_a_place_beyond_the_angles_is_refused(run_node):
    cache, places = np.ones((9, 3), np.float32), np.full((2, 4), 9)
    with pytest.raises(EngineError, match="index 9"):
        run_node("RotaryEmbedding", [np.ones(_X, np.float32), cache, cache, places])
