"""Clip, Shrink, Dropout."""

import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError

X = np.array([-3, -1, 0, 1, 3], np.float32)


@pytest.mark.parametrize("version", [1, 6])
def test_bounds_of_clip_were_attributes(run_node, version):
    (made,) = run_node("Clip", [X], version=version, min=-1.0, max=2.0)
    assert made.tolist() == [-1, -1, 0, 1, 2]


@pytest.mark.parametrize("inputs", [[X], [X, None, None]])
def test_clip_without_bounds_changes_nothing(run_node, inputs):
    np.testing.assert_array_equal(run_node("Clip", inputs)[0], X)


def test_clip_takes_the_upper_bound_where_bounds_cross(run_node):
    low, high = np.float32(2), np.float32(-2)
    assert run_node("Clip", [X, low, high])[0].tolist() == [-2] * 5


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float16", ml_dtypes.bfloat16])
def test_clip_of_any_number(run_node, dtype):
    x = np.array([0, 1, 2, 3], dtype)
    (made,) = run_node("Clip", [x, np.array(1, dtype), np.array([2], dtype)])
    assert made.astype(int).tolist() == [1, 1, 2, 2]


def test_attributes_beyond_float16_do_not_clip(run_node):
    x = X.astype(np.float16)
    (made,) = run_node("Clip", [x], version=6, min=-3.4e38, max=3.4e38)
    np.testing.assert_array_equal(made, x)


@pytest.mark.parametrize(
    ("bound", "error"),
    [(np.ones(2, np.float32), ShapeError), (np.float64(1), DTypeError)],
)
def test_a_wrong_bound_of_clip_is_refused(run_node, bound, error):
    with pytest.raises(error):
        run_node("Clip", [X, bound])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("bias", "lambd"), [(0.0, 1.5), (1.0, 1.0), (1.5, 0.5), (-1.0, 0.5), (0.0, 1e9), (2.0, -1.5)]
)
def test_shrink_is_its_formula(run_node, dtype, bias, lambd):
    x = np.arange(0 if dtype == "uint8" else -5, 6).astype(dtype)
    wide = x.astype(np.float64)
    expected = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    (made,) = run_node("Shrink", [x], bias=bias, lambd=lambd)
    if dtype == "uint8":
        expected = np.trunc(expected).astype(np.int64).astype(dtype)
    np.testing.assert_array_equal(made, expected.astype(dtype))


def test_shrink_of_large_integers_is_exact(run_node):
    x = np.array([2**62 + 1], np.int64)
    assert run_node("Shrink", [x], bias=1.0, lambd=1.0)[0].tolist() == [2**62]


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
def test_dropout_drops_nothing_when_it_does_not_train(run_node, version):
    made, mask = run_node("Dropout", [X], outputs=2, version=version)
    np.testing.assert_array_equal(made, X)
    assert mask.all()
    assert mask.dtype == (np.float32 if version == 7 else np.bool_)


@pytest.mark.parametrize("version", [1, 6])
def test_dropout_trained_by_default_before_opset_7(run_node, version):
    x = np.ones(1000, np.float32)
    made, mask = run_node("Dropout", [x], outputs=2, version=version, ratio=0.25, seed=3)
    np.testing.assert_allclose(made, mask / 0.75)
    assert 0.7 < mask.mean() < 0.8
    (same,) = run_node("Dropout", [x], version=version, is_test=1)
    np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16])
def test_dropout_scales_what_stays(run_node, dtype):
    x = np.ones((20, 30), dtype)
    inputs = [x, np.float32(0.5), np.array([True]).reshape(())]
    made, mask = run_node("Dropout", inputs, outputs=2, seed=-1)
    np.testing.assert_array_equal(made.astype(float), np.where(mask, 2, 0))


@pytest.mark.parametrize("ratio", [1.0, -0.5, np.nan])
def test_a_ratio_out_of_range_is_refused(run_node, ratio):
    with pytest.raises(LoweringError, match="ratio"):
        run_node("Dropout", [X, np.float32(ratio), np.array([True]).reshape(())])


def test_a_mode_of_many_elements_is_refused(run_node):
    with pytest.raises(ShapeError):
        run_node("Dropout", [X, None, np.array([True, False])])


@pytest.mark.parametrize("operator", ["Clip", "Shrink", "Dropout"])
def test_nothing_stays_nothing(run_node, operator):
    assert run_node(operator, [np.ones((0, 2), np.float32)])[0].shape == (0, 2)
