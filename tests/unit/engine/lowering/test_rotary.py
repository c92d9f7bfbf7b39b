"""RotaryEmbedding: both ways to pair features, places, and what is refused."""

import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, ShapeError


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
        ([_X, (9, 3), (9, 3), (2, 4)], {}, DTypeError, "places are whole numbers"),
        ([_X, (9, 3), (9, 3), (4, 2)], {}, ShapeError, "places of shape"),
    ],
)
def test_bad_input_is_named(run_node, shapes, given, error, words):
    with pytest.raises(error, match=words):
        run_node("RotaryEmbedding", [np.ones(each, np.float32) for each in shapes], **given)


def test_a_place_beyond_the_angles_is_refused(run_node):
    cache, places = np.ones((9, 3), np.float32), np.full((2, 4), 9)
    with pytest.raises(EngineError, match="index 9"):
        run_node("RotaryEmbedding", [np.ones(_X, np.float32), cache, cache, places])
