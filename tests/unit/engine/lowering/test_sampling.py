"""Samples at points that are computed, against formulas that are written out."""

import numpy as np
import pytest

from tests.unit.engine.lowering.nodes import run
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


def grid_of(at, size):
    """Give the grid of coordinates of a row, corners aligned."""
    return (np.asarray(at, np.float64) * 2 / (size - 1) - 1).reshape(1, -1, 1)


ROW = np.array([[[1.0, 2, 4, 8]]])


@pytest.mark.parametrize(
    ("mode", "padding", "expected"),
    [
        (b"linear", b"zeros", [0.5, 0, 1.5, 4, 0]),
        (b"linear", b"border", [1, 1, 1.5, 8, 8]),
        (b"linear", b"reflection", [1.5, 4, 1.5, 6, 2]),
        (b"nearest", b"zeros", [1, 0, 1, 0, 0]),
        (b"nearest", b"border", [1, 1, 1, 8, 8]),
        (b"nearest", b"reflection", [1, 4, 1, 4, 2]),
    ],
)
def test_a_row_is_read_between_its_elements(mode, padding, expected):
    grid = grid_of([-0.5, -2, 0.5, 3.5, 5], 4)
    found = run("GridSample", [ROW, grid], mode=mode, padding_mode=padding, align_corners=1)
    np.testing.assert_allclose(found, [[expected]], atol=1e-12)


def test_cubic_goes_through_the_elements():
    found = run("GridSample", [ROW, grid_of([1, 2], 4)], mode=b"cubic", align_corners=1)
    np.testing.assert_allclose(found, [[[2, 4]]], atol=1e-12)


def test_the_first_version_calls_two_axes_bilinear():
    x, grid = np.arange(4.0).reshape(1, 1, 2, 2), np.zeros((1, 1, 1, 2))
    for mode in (b"bilinear", b"bicubic"):
        found = run("GridSample", [x, grid], version=16, mode=mode, padding_mode=b"border")
        np.testing.assert_allclose(found, [[[[1.5]]]])


def test_volumes_are_read_image_by_image():
    x = np.arange(16.0).reshape(2, 1, 2, 2, 2)
    grid = np.zeros((2, 1, 1, 1, 3))
    np.testing.assert_allclose(run("GridSample", [x, grid], version=20).reshape(-1), [3.5, 11.5])


@pytest.mark.parametrize("padding", [b"zeros", b"border", b"reflection"])
@pytest.mark.parametrize("mode", [b"linear", b"nearest", b"cubic"])
def test_points_that_are_no_numbers_read_nothing_outside(mode, padding):
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30]).reshape(1, -1, 1)
    found = run("GridSample", [ROW, grid], mode=mode, padding_mode=padding)
    assert found.shape == (1, 1, 5)


@pytest.mark.parametrize("corners", [0, 1])
def test_a_single_element_reflects_itself(corners):
    found = run(
        "GridSample", [np.full((1, 1, 1), 3.0), np.array([[[-3.7], [0.2]]])],
        padding_mode=b"reflection", align_corners=corners,
    )  # fmt: skip
    np.testing.assert_allclose(found, [[[3, 3]]])


def test_whole_numbers_are_cut_after_they_are_weighted():
    x = np.array([[[1, 2]]], np.int32)
    found = run("GridSample", [x, grid_of([0.75], 2)], align_corners=1)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [[[1]]])


def test_strings_are_sampled_by_the_nearest():
    x = np.array([[["a", "b"]]], object)
    found = run("GridSample", [x, grid_of([0, 1, 9], 2)], mode=b"nearest", align_corners=1)
    assert found.tolist() == [[["a", "b", ""]]]
    with pytest.raises(DTypeError, match="strings"):
        run("GridSample", [x, grid_of([0, 1], 2)])


def test_empty_grids_are_sampled():
    x = np.ones((2, 3, 4, 4))
    assert run("GridSample", [x, np.ones((2, 0, 5, 2))]).shape == (2, 3, 0, 5)
    with pytest.raises(ShapeError, match="no elements"):
        run("GridSample", [np.ones((2, 3, 0, 4)), np.ones((2, 1, 1, 2))])


@pytest.mark.parametrize(
    ("grid", "more", "error"),
    [
        (np.ones((1, 4, 2)), {}, ShapeError),
        (np.ones((2, 4, 1)), {}, ShapeError),
        (np.ones((1, 4, 1)), {"mode": b"x"}, LoweringError),
        (np.ones((1, 4, 1)), {"padding_mode": b"x"}, LoweringError),
        (np.ones((1, 4, 1), int), {}, DTypeError),
    ],
)
def test_a_wrong_grid_is_refused(grid, more, error):
    with pytest.raises(error):
        run("GridSample", [ROW, grid], **more)


@pytest.mark.parametrize(("corners", "ends"), [(0, 2 / 3), (1, 1)])
def test_the_identity_makes_even_points(corners, ends):
    theta = np.eye(3)[None, :2].astype(np.float32)
    size = np.array([1, 1, 2, 3])
    found = run("AffineGrid", [theta, size], known=(1,), align_corners=corners)
    np.testing.assert_allclose(found[0, 0, :, 0], [-ends, 0, ends], rtol=1e-6)
    np.testing.assert_allclose(found[0, :, 0, 1], [-0.5 - corners / 2, 0.5 + corners / 2])


def test_affine_grids_are_linear_in_their_points():
    theta = np.random.default_rng(0).standard_normal((2, 3, 4))
    size = np.array([2, 5, 2, 3, 4])
    found = run("AffineGrid", [theta, size], known=(1,))
    axes = [(np.arange(n) * 2 + 1) / n - 1 for n in (2, 3, 4)]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    points = np.stack([x, y, z, np.ones_like(x)], -1)
    np.testing.assert_allclose(found, np.einsum("dhwk,nrk->ndhwr", points, theta), atol=1e-12)


def test_affine_grids_refuse_another_size():
    with pytest.raises(ShapeError, match="for a size"):
        run("AffineGrid", [np.ones((1, 2, 3)), np.array([2, 1, 2, 2])], known=(1,))


def test_crops_and_pads_are_centred():
    x = np.arange(1, 6)
    for size, expected in ((2, [2, 3]), (3, [2, 3, 4]), (8, [0, 1, 2, 3, 4, 5, 0, 0])):
        found = run("CenterCropPad", [x, np.array([size])], known=(1,), version=18)
        np.testing.assert_array_equal(found, expected)


def test_strings_are_padded_with_nothing():
    found = run("CenterCropPad", [np.array(["a"], object), np.array([3])], known=(1,))
    assert found.tolist() == ["", "a", ""]


def test_crops_refuse_negative_sizes_and_other_axes():
    with pytest.raises(ShapeError):
        run("CenterCropPad", [np.ones(3), np.array([-1])], known=(1,))
    with pytest.raises(ShapeError):
        run("CenterCropPad", [np.ones(3), np.array([2])], known=(1,), axes=(1,))


def test_a_size_that_is_text_is_refused():
    with pytest.raises(EngineError, match="whole numbers"):
        run("CenterCropPad", [np.ones(3), np.array(["x"], object)], known=(1,))
