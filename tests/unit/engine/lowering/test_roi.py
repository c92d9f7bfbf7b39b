"""Pools over boxes, against samples and bins that are looked at one by one."""

import itertools
from math import ceil, floor

import numpy as np
import pytest

from tests.unit.engine.lowering.nodes import run
from walle_stream.errors import EngineError, LoweringError, ShapeError


def corners_of(plane, y, x):
    """Give the four weighted neighbours of a point of an image."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return [0.0] * 4
    found = [1.0]
    places = []
    for at, size in ((y, height), (x, width)):
        held = min(max(at, 0), size - 1)
        low = floor(held)
        part = held - low
        places.append((low, min(low + 1, size - 1)))
        found = [each * weight for each in found for weight in (1 - part, part)]
    taps = itertools.product(*places)
    return [weight * plane[tap] for weight, tap in zip(found, taps, strict=True)]


def aligned(x, rois, batch, bins, ratio, mode, *, shift):
    made = np.zeros((len(rois), x.shape[1], *bins))
    for box, (left, top, right, bottom) in enumerate(rois):
        starts, sizes = (top - shift, left - shift), [bottom - top, right - left]
        if not shift:
            sizes = [max(each, 1) for each in sizes]
        grid = [ratio or max(ceil(n / b), 0) for n, b in zip(sizes, bins, strict=True)]
        for channel, *places in itertools.product(range(x.shape[1]), *map(range, bins)):
            points = [
                [
                    start + at * n / b + (s + 0.5) * n / b / g
                    for s in range(g)
                ]
                for start, at, n, b, g in zip(starts, places, sizes, bins, grid, strict=True)
            ]  # fmt: skip
            seen = [
                corners_of(x[batch[box], channel], *each) for each in itertools.product(*points)
            ]
            if mode == "avg":
                value = sum(map(sum, seen)) / max(len(seen), 1)
            else:
                value = max(map(max, seen), default=0)
            made[(box, channel, *places)] = value
    return made


BOXES = np.array([
    [0.3, 1.2, 5.1, 7.7], [-4, -3, 20, 12], [2, 2, 2, 2], [6.4, 0, 6.9, 9], [3, 3, 1, 8],
    [-30, -30, -20, -20],
])  # fmt: skip


@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("version", [10, 16])
def test_boxes_are_sampled_evenly(version, mode, ratio):
    x = np.random.default_rng(0).standard_normal((3, 2, 9, 7))
    batch = np.array([0, 2, 1, 1, 0, 2])
    found = run(
        "RoiAlign", [x, BOXES, batch], version=version, mode=mode.encode(), sampling_ratio=ratio,
        output_height=3, output_width=2,
    )  # fmt: skip
    shift = 0.5 if version == 16 else 0
    np.testing.assert_allclose(
        found, aligned(x, BOXES, batch, (3, 2), ratio, mode, shift=shift), atol=1e-9
    )


def test_boxes_are_scaled_to_the_image():
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 6))
    found = run("RoiAlign", [x, BOXES[:1] * 4, np.array([0])], spatial_scale=0.25)
    expected = run("RoiAlign", [x, BOXES[:1], np.array([0])])
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_an_image_that_does_not_exist_fails_the_run():
    with pytest.raises(EngineError, match="index 5"):
        run("RoiAlign", [np.ones((2, 1, 4, 4)), BOXES[:1], np.array([5])], sampling_ratio=2)


@pytest.mark.parametrize("ratio", [0, 2])
def test_no_boxes_make_an_empty_output(ratio):
    found = run(
        "RoiAlign", [np.ones((2, 3, 4, 4)), np.zeros((0, 4)), np.zeros(0, np.int64)],
        sampling_ratio=ratio,
    )  # fmt: skip
    assert found.shape == (0, 3, 1, 1)


def pooled(x, rois, bins, scale):
    made = np.zeros((len(rois), x.shape[1], *bins))
    for box, (image, *corners) in enumerate(rois):
        left, top, right, bottom = (
            int(np.sign(each) * floor(abs(each) * scale + 0.5)) for each in corners
        )
        for place in itertools.product(*map(range, bins)):
            spans = []
            for at, b, low, high, size in zip(
                place, bins, (top, left), (bottom, right), x.shape[2:], strict=True
            ):
                step = max(high - low + 1, 1) / b
                first, last = floor(at * step) + low, ceil((at + 1) * step) + low
                spans.append(slice(min(max(first, 0), size), min(max(last, 0), size)))
            seen = x[(int(image), slice(None), *spans)].reshape(x.shape[1], -1)
            made[(box, slice(None), *place)] = seen.max(1) if seen.size else 0
    return made


def test_bins_have_their_greatest_element():
    x = np.random.default_rng(0).standard_normal((2, 3, 11, 16))
    rois = np.array([
        [0, 0, 0, 15, 10], [1, 2, 3, 9, 4], [1, -8, 2, 40, 9], [0, 5, 5, 5, 5], [1, 30, 30, 40, 40],
    ]).astype(float)  # fmt: skip
    for bins in ((1, 1), (2, 4), (3, 2)):
        found = run("MaxRoiPool", [x, rois], pooled_shape=bins, spatial_scale=0.5, version=1)
        np.testing.assert_array_equal(found, pooled(x, rois, bins, 0.5))


def test_no_boxes_are_pooled():
    found = run("MaxRoiPool", [np.ones((1, 2, 4, 4)), np.zeros((0, 5))], pooled_shape=(2, 2))
    assert found.shape == (0, 2, 2, 2)


X = np.ones((1, 1, 4, 4))


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "error"),
    [
        ("RoiAlign", [X, np.ones((2, 5)), np.zeros(2, int)], {}, ShapeError),
        ("RoiAlign", [X, np.ones((2, 4)), np.zeros(3, int)], {}, ShapeError),
        ("RoiAlign", [X[0], np.ones((2, 4)), np.zeros(2, int)], {}, ShapeError),
        ("RoiAlign", [X, BOXES, np.zeros(6, int)], {"mode": b"sum"}, LoweringError),
        ("RoiAlign", [X, BOXES, np.zeros(6, int)], {"output_width": 0}, LoweringError),
        ("RoiAlign", [X, BOXES, np.zeros(6, int)], {"sampling_ratio": 1 << 40}, ShapeError),
        ("RoiAlign", [X, BOXES, np.zeros(6, int)], {"output_height": 1 << 40}, ShapeError),
        ("RoiAlign", [X, BOXES], {}, LoweringError),
        ("MaxRoiPool", [X, np.ones((2, 4))], {"pooled_shape": (1, 1)}, ShapeError),
        ("MaxRoiPool", [X, np.ones((2, 5))], {"pooled_shape": (1, 0)}, ShapeError),
        ("MaxRoiPool", [X, np.ones((2, 5))], {}, ShapeError),
    ],
)
def test_wrong_boxes_are_refused(operator, inputs, attributes, error):
    with pytest.raises(error):
        run(operator, inputs, **attributes)
