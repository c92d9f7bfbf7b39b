"""Constants that are spread: the same elements, longer inner loops."""

import numpy as np
import pytest

from walle_stream.engine.backends.spreading import BLOCK_MAX_BYTES
from walle_stream.engine.backends.spreading import laid_out as lay_out
from walle_stream.engine.operators import Operator


def laid_out(operator, x, constant, shape):
    spread = np.broadcast_to(constant, shape)
    output = np.empty(shape, x.dtype)
    made = lay_out(operator, [x, spread], [None, constant], output)
    assert made[1] is output or made[1].base is output
    return made


def test_a_bias_is_laid_out_beside_itself():
    x, bias = np.random.default_rng(1).random((160, 96)), np.arange(96.0)
    (left, right), output = laid_out(Operator.ADD, x, bias, x.shape)
    assert left.shape == right.shape == output.shape == (10, 1536)
    assert right.strides == (0, 8)
    np.testing.assert_array_equal((left + right).reshape(x.shape), x + bias)


def test_what_has_gaps_is_laid_out_by_rows():
    image, taps = np.random.default_rng(1).random((6, 58, 32)), np.arange(32.0)
    x = image[1:5, 1:57]
    (left, right), output = laid_out(Operator.MUL, x, taps, x.shape)
    assert left is x
    assert output.shape == right.shape == x.shape
    assert right.strides == (0, 32 * 8, 8)
    np.testing.assert_array_equal(left * right, x * taps)


@pytest.mark.parametrize(
    ("operator", "is_laid_out"), [(Operator.MAXIMUM, True), (Operator.ADD, False)]
)
def test_a_number_is_laid_out_where_numpy_is_slow_with_numbers(operator, is_laid_out):
    x = np.random.default_rng(1).random((64, 64))
    (_, right), _ = laid_out(operator, x, np.zeros(()), x.shape)
    assert (right.strides[-1] == 8) is is_laid_out


def test_tiles_share_what_was_laid_out():
    bias = np.arange(64.0)
    views = []
    for rows in (128, 128, 96):
        output = np.empty((rows, 64))
        given = [output.copy(), np.broadcast_to(bias, output.shape)]
        views.append(lay_out(Operator.ADD, given, [None, bias], output)[0][1])
    assert views[0].base is views[1].base
    assert all(np.array_equal(each, np.tile(bias, 16)[None].repeat(len(each), 0)) for each in views)


def test_views_of_one_constant_at_other_places_are_others():
    bias = np.arange(64.0)
    x, output = np.zeros((128, 32)), np.empty((128, 32))
    for start in (0, 32, 7):
        part = np.broadcast_to(bias[start : start + 32], x.shape)
        (_, right), _ = lay_out(Operator.ADD, [x, part], [None, bias], output)
        np.testing.assert_array_equal(right[0, :32], bias[start : start + 32])


@pytest.mark.parametrize("shape", [(0, 96), (96,), (1, 96), (7, 1), (1, 1)])
def test_small_and_empty_shapes_stay_right(shape):
    x, bias = np.ones(shape), np.arange(float(shape[-1]))
    (left, right), output = laid_out(Operator.MUL, x, bias, shape)
    np.testing.assert_array_equal((left * right).reshape(shape), x * bias)
    assert output.size == x.size


def test_what_would_fill_the_cache_is_left():
    x = np.zeros((2, 7, BLOCK_MAX_BYTES // 8))[:, ::2]
    (_, right), _ = laid_out(Operator.ADD, x, np.ones((1, 4, 1)), x.shape)
    assert right.strides[-1] == 0
