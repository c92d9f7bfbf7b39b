"""Resize and Upsample, against numbers that are known and an interpolation by hand."""

import numpy as np
import pytest

from tests.unit.engine.lowering.nodes import run
from walle_stream.engine.lowering import resizing
from walle_stream.errors import DTypeError, LoweringError, ShapeError


def resize(x, *, scales=None, sizes=None, roi=None, version=19, **attributes):
    inputs = [
        x,
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes),
    ]
    known = tuple(number for number in (1, 2, 3) if inputs[number] is not None)
    return run("Resize", inputs, known=known, version=version, **attributes)


def interpolated(x, at):
    """Read the last axis between its elements, the border continued."""
    low = np.floor(at).astype(int)
    first, second = (np.clip(low + each, 0, x.shape[-1] - 1) for each in (0, 1))
    return x[..., first] * (1 - (at - low)) + x[..., second] * (at - low)


ROW = np.array([[1.0, 2, 4, 8]])


@pytest.mark.parametrize(
    ("mode", "at"),
    [
        (b"half_pixel", (np.arange(8) + 0.5) / 2 - 0.5),
        (b"pytorch_half_pixel", (np.arange(8) + 0.5) / 2 - 0.5),
        (b"align_corners", np.arange(8) * 3 / 7),
        (b"asymmetric", np.arange(8) / 2),
        (b"tf_half_pixel_for_nn", (np.arange(8) + 0.5) / 2),
    ],
)
@pytest.mark.parametrize("dense", [1 << 24, 0])
def test_linear_weights_the_two_neighbours(monkeypatch, mode, at, dense):
    monkeypatch.setattr(resizing, "_MATRIX_MAX", dense)
    found = resize(
        ROW, scales=[1, 2], mode=b"linear", coordinate_transformation_mode=mode, version=11
    )
    np.testing.assert_allclose(found, interpolated(ROW, at), atol=1e-12)


def test_axes_in_the_middle_are_resized_like_the_last():
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 4))
    found = resize(x, scales=[1, 1.6, 1, 1], mode=b"linear")
    expected = resize(np.moveaxis(x, 1, -1), scales=[1, 1, 1, 1.6], mode=b"linear")
    np.testing.assert_allclose(found, np.moveaxis(expected, -1, 1), atol=1e-12)


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ([1, 2], [1, 1, 2, 2, 4, 4, 8, 8]),
        ([1, 0.5], [1, 4]),
        ([1, 1.5], [1, 1, 2, 4, 4, 8]),
        ([2, 1], [[1, 2, 4, 8]] * 2),
        ([1, 0.6], [1, 2]),
    ],
)
def test_nearest_repeats_steps_or_takes(scales, expected):
    found = resize(
        ROW, scales=scales, nearest_mode=b"floor", coordinate_transformation_mode=b"asymmetric"
    )
    np.testing.assert_array_equal(found, np.reshape(expected, found.shape))


def test_one_element_may_be_read_everywhere():
    found = resize(
        np.array([[1.0, 2]]),
        sizes=[1, 2],
        nearest_mode=b"floor",
        roi=[0, 0.6, 1, 0.9],
        coordinate_transformation_mode=b"tf_crop_and_resize",
    )
    np.testing.assert_array_equal(found, [[1, 1]])


def test_sizes_are_a_quotient_of_whole_numbers():
    x = np.arange(49.0).reshape(1, 49)
    found = resize(
        x, sizes=[1, 147], nearest_mode=b"floor", coordinate_transformation_mode=b"asymmetric"
    )
    np.testing.assert_array_equal(found, x.repeat(3, 1))


def test_nearest_moves_strings():
    x = np.array([["a", "b"]], object)
    assert resize(x, sizes=[1, 4]).tolist() == [["a", "a", "b", "b"]]


def test_whole_numbers_are_rounded_and_held_in_their_range():
    x = np.array([[0, 10, 255, 0]], np.uint8)
    found = resize(x, scales=[1, 2], mode=b"cubic")
    exact = resize(x.astype(np.float64), scales=[1, 2], mode=b"cubic")
    assert exact.min() < 0
    np.testing.assert_array_equal(found, np.clip(np.rint(exact), 0, 255))


def test_a_constant_stays_what_it_is():
    x = np.full((1, 1, 5, 5), 2**40 + 1)
    found = resize(x, scales=[1, 1, 1.7, 1.3], mode=b"linear")
    np.testing.assert_array_equal(found, np.full(found.shape, 2**40 + 1))


def test_float16_is_weighted_in_float32():
    x = np.array([[1, 3]], np.float16)
    found = resize(x, scales=[1, 2], mode=b"linear")
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, [[1, 1.5, 2.5, 3]])


def test_complex_numbers_are_weighted():
    x = np.array([[1 + 1j, 3 - 1j]])
    found = resize(x, scales=[1, 2], mode=b"linear")
    np.testing.assert_allclose(found, [[1 + 1j, 1.5 + 0.5j, 2.5 - 0.5j, 3 - 1j]])


def test_antialias_averages_what_an_element_stands_for():
    found = resize(np.array([[0.0, 0, 12, 0]]), scales=[1, 0.5], mode=b"linear", antialias=1)
    weights = np.array([0.25, 0.75, 0.75, 0.25]) / 2
    np.testing.assert_allclose(found, [[12 * weights[3], 12 * weights[1]]])


def test_what_is_outside_of_a_crop_is_extrapolated():
    found = resize(
        ROW, sizes=[1, 3], roi=[0, 0, 1, 2], coordinate_transformation_mode=b"tf_crop_and_resize",
        mode=b"linear", extrapolation_value=-1.0, version=11,
    )  # fmt: skip
    np.testing.assert_allclose(found, [[1, 8, -1]])


def test_scales_count_in_float32():
    x = np.zeros((1, 10), np.float32)
    assert resize(x, scales=[1, 0.7]).shape == (1, 7)
    assert run("Upsample", [x], version=7, scales=(1.0, 0.7)).shape == (1, 7)


@pytest.mark.parametrize(("policy", "width"), [(b"not_larger", 3), (b"not_smaller", 6)])
def test_the_aspect_ratio_may_be_kept(policy, width):
    x = np.zeros((4, 8), np.float32)
    found = resize(x, sizes=[3, 3], axes=(-2, 1), keep_aspect_ratio_policy=policy, version=18)
    assert found.shape == ((2, 3) if width == 3 else (3, 6))


@pytest.mark.parametrize(
    ("version", "inputs", "attributes"),
    [
        (1, 1, {"height_scale": 2.0, "width_scale": 3.0}),
        (7, 1, {"scales": (1.0, 1.0, 2.0, 3.0)}),
        (9, 2, {}),
    ],
)
def test_upsample_of_all_versions_repeats(version, inputs, attributes):
    x = np.arange(4.0).reshape(1, 1, 2, 2)
    given = [x, np.array([1, 1, 2, 3], np.float32)][:inputs]
    found = run("Upsample", given, version=version, known=range(1, inputs), **attributes)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(3, 3))


def test_upsample_is_linear_from_where_an_element_begins():
    x = np.array([[1.0, 3]])
    found = run("Upsample", [x], version=7, scales=(1.0, 2.0), mode=b"linear")
    np.testing.assert_array_equal(found, [[1, 2, 3, 3]])


def test_resize_10_rounds_up_where_it_sizes_down():
    x, scales = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([0.6, 0.6], np.float32)
    np.testing.assert_array_equal(run("Resize", [x, scales], known=(1,), version=10), [[1, 3]])


def test_empty_tensors_are_resized_to_empty_ones():
    x = np.ones((0, 3, 4))
    assert resize(x, scales=[1, 1, 2], mode=b"linear").shape == (0, 3, 8)
    assert resize(x, sizes=[0, 2, 2]).shape == (0, 2, 2)
    with pytest.raises(ShapeError, match="no elements"):
        resize(x, sizes=[1, 2, 2])


@pytest.mark.parametrize(
    ("more", "error", "line"),
    [
        ({}, LoweringError, "either scales or sizes"),
        ({"scales": [1, 2], "sizes": [1, 8]}, LoweringError, "either scales or sizes"),
        ({"scales": [2]}, ShapeError, "1 scales for 2 axes"),
        ({"scales": [1, -2]}, ShapeError, "a scale of -2.0"),
        ({"scales": [1, np.nan]}, ShapeError, "a scale of nan"),
        ({"scales": [1, 1e20]}, ShapeError, "more than"),
        ({"sizes": [1, -1]}, ShapeError, "sizes"),
        ({"sizes": [1, 1 << 40]}, ShapeError, "more than"),
        ({"sizes": [1, 1 << 30]}, ShapeError, "the coordinates of shape"),
        ({"sizes": [4, 4], "axes": (0, -2)}, ShapeError, "name an axis twice"),
        ({"sizes": [4], "axes": (2,)}, ShapeError, "no axis 2"),
        ({"sizes": [1, 8], "mode": b"sinc"}, LoweringError, "'mode' is 'sinc'"),
        ({"sizes": [1, 8], "nearest_mode": b"x"}, LoweringError, "nearest_mode 'x'"),
        ({"sizes": [1, 8], "coordinate_transformation_mode": b"x"}, LoweringError, "'x' is unk"),
        ({"sizes": [1, 8], "keep_aspect_ratio_policy": b"x"}, LoweringError, "policy' is 'x'"),
    ],
)
def test_a_wrong_resize_is_refused_in_one_line(more, error, line):
    with pytest.raises(error, match=line) as caught:
        resize(ROW, **more)
    assert "\n" not in caught.value.message


def test_strings_have_nothing_between_them():
    with pytest.raises(DTypeError, match="strings"):
        resize(np.array([["a", "b"]], object), sizes=[1, 4], mode=b"linear")
