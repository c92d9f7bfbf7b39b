"""Pools, against windows that are looked at one by one."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.unit.engine.lowering.nodes import run
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


def windows(shape, kernel, strides, dilations, pads):
    """Give what each window sees of each axis, padding apart, without ceil_mode."""
    rank = len(shape)
    counts = [
        (n + pads[axis] + pads[rank + axis] - (kernel[axis] - 1) * dilations[axis] - 1)
        // strides[axis]
        + 1
        for axis, n in enumerate(shape)
    ]
    found = {}
    for place in itertools.product(*map(range, counts)):
        axes = [
            [at * strides[a] + tap * dilations[a] - pads[a] for tap in range(kernel[a])]
            for a, at in enumerate(place)
        ]
        found[place] = [[i for i in axis if 0 <= i < shape[a]] for a, axis in enumerate(axes)]
    return counts, found


def pooled(x, function, kernel, strides, dilations, pads):
    counts, places = windows(x.shape[2:], kernel, strides, dilations, pads)
    made = np.zeros((*x.shape[:2], *counts))
    for place, axes in places.items():
        seen = x[(slice(None), slice(None), *np.ix_(*axes))].reshape(*x.shape[:2], -1)
        made[(slice(None), slice(None), *place)] = function(seen)
    return made


CASES = [
    pytest.param(((11,), (3,), (2,), (1,), (1, 1)), id="1-D"),
    pytest.param(((8, 9), (2, 2), (2, 2), (1, 1), (0,) * 4), id="apart"),
    pytest.param(((8, 9), (3, 2), (1, 2), (2, 1), (1, 0, 2, 1)), id="dilated"),
    pytest.param(((20, 21), (13, 7), (1, 1), (1, 1), (6, 3, 6, 3)), id="doubled"),
    pytest.param(((20, 21), (8, 16), (1, 2), (1, 1), (0,) * 4), id="powers of 2"),
    pytest.param(((30, 9), (6, 9), (6, 1), (1, 1), (0,) * 4), id="gathered, and whole"),
    pytest.param(((40, 5), (9, 1), (20, 1), (2, 1), (0,) * 4), id="far apart"),
    pytest.param(((4, 5, 6), (2, 3, 2), (1, 2, 2), (1,) * 3, (0, 1, 0, 1, 0, 1)), id="3-D"),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("operator", "function", "more"),
    [
        ("MaxPool", lambda seen: seen.max(-1), {}),
        ("AveragePool", lambda seen: seen.mean(-1), {}),
        ("LpPool", lambda seen: np.sqrt((seen**2).sum(-1)), {}),
        ("LpPool", lambda seen: np.abs(seen).sum(-1), {"p": 1}),
        ("LpPool", lambda seen: (np.abs(seen) ** 3).sum(-1) ** (1 / 3), {"p": 3}),
    ],
)
def test_pools_see_every_tap(case, operator, function, more):
    shape, kernel, strides, dilations, pads = case
    x = np.random.default_rng(0).standard_normal((2, 3, *shape))
    found = run(
        operator, [x], kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, **more
    )
    expected = pooled(x, function, kernel, strides, dilations, pads)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_indices_are_of_the_greatest_elements(case):
    shape, kernel, strides, dilations, pads = case
    x = np.random.default_rng(0).standard_normal((2, 3, *shape))
    values, indices = run(
        "MaxPool", [x], outputs=2, kernel_shape=kernel, strides=strides, dilations=dilations,
        pads=pads,
    )  # fmt: skip
    np.testing.assert_array_equal(x.reshape(-1)[indices], values)


def test_the_first_of_equals_is_the_index():
    x = np.zeros((1, 1, 2, 3), np.float32)
    _, indices = run("MaxPool", [x], outputs=2, kernel_shape=(2, 2), pads=(1, 0, 0, 0), version=8)
    np.testing.assert_array_equal(indices, [[[[0, 1], [0, 1]]]])


def test_indices_of_columns_count_down_first():
    x = np.arange(6.0).reshape(1, 1, 2, 3)
    _, indices = run("MaxPool", [x], outputs=2, kernel_shape=(2, 2), storage_order=1)
    np.testing.assert_array_equal(indices, [[[[3, 5]]]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16])
def test_the_padding_is_never_the_greatest(dtype):
    x = np.array([[[0, 1, 2]]]).astype(dtype)
    found = run("MaxPool", [x], kernel_shape=(2,), pads=(1, 1))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), [[[0, 1, 2, 2]]])


def test_minus_infinity_has_the_index_of_an_element():
    x = np.full((1, 1, 3), -np.inf)
    values, indices = run("MaxPool", [x], outputs=2, kernel_shape=(2,), pads=(1, 1))
    np.testing.assert_array_equal(values, np.full((1, 1, 4), -np.inf))
    assert indices.min() >= 0
    assert indices.max() <= 2


@pytest.mark.parametrize(("ceil", "expected"), [(0, [1.5]), (1, [1.5, 3])])
def test_a_last_window_beyond_the_end_counts_what_is_there(ceil, expected):
    x = np.array([[[1.0, 2, 3]]])
    found = run("AveragePool", [x], kernel_shape=(2,), strides=(2,), ceil_mode=ceil, version=10)
    np.testing.assert_array_equal(found, [[expected]])


def test_windows_that_start_in_the_padding_behind_are_left_out():
    x = np.array([[[1.0, 2, 3]]])
    found = run("MaxPool", [x], kernel_shape=(1,), strides=(2,), pads=(0, 1), ceil_mode=1)
    np.testing.assert_array_equal(found, [[[1, 3]]])


def test_padding_may_be_counted_but_not_what_is_beyond_it():
    x = np.ones((1, 1, 3))
    found = run(
        "AveragePool", [x], kernel_shape=(3,), strides=(3,), pads=(1, 0), ceil_mode=1,
        count_include_pad=1,
    )  # fmt: skip
    np.testing.assert_allclose(found, [[[2 / 3, 1]]])


def test_narrow_averages_do_not_overflow():
    x = np.full((1, 1, 4), 60000, np.float16)
    np.testing.assert_array_equal(run("AveragePool", [x], kernel_shape=(4,)), [[[60000]]])
    np.testing.assert_array_equal(run("GlobalAveragePool", [x]), [[[60000]]])


def test_the_first_lp_pools_have_a_floating_p():
    x = np.array([[[3.0, -4.0]]])
    found = run("LpPool", [x], kernel_shape=(2,), p=1.5, version=1)
    np.testing.assert_allclose(found, [[[(3**1.5 + 4**1.5) ** (2 / 3)]]])
    found = run("GlobalLpPool", [x], version=1, p=2.0)
    np.testing.assert_allclose(found, [[[5.0]]])


@pytest.mark.parametrize("operator", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
def test_global_pools_keep_their_axes(operator):
    x = np.ones((2, 3, 1, 1, 1), np.float32)
    np.testing.assert_array_equal(run(operator, [x], version=1), x)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_empty_batches_are_pooled(operator):
    assert run(operator, [np.ones((0, 2, 5))], kernel_shape=(2,)).shape == (0, 2, 4)


def test_an_empty_batch_has_empty_indices():
    values, indices = run("MaxPool", [np.ones((0, 2, 5))], outputs=2, kernel_shape=(2,))
    assert values.shape == indices.shape == (0, 2, 4)
    assert indices.dtype == np.int64


X = np.ones((1, 2, 5, 5))


@pytest.mark.parametrize(
    ("operator", "x", "attributes", "error", "line"),
    [
        ("MaxPool", X, {}, LoweringError, "'kernel_shape' is missing"),
        ("MaxPool", X, {"kernel_shape": (2,)}, ShapeError, "for 2 spatial axes"),
        ("MaxPool", X, {"kernel_shape": (0, 2)}, ShapeError, "must be positive"),
        ("MaxPool", X, {"kernel_shape": (1 << 40, 2)}, ShapeError, "wider than 5"),
        ("MaxPool", X, {"kernel_shape": (2, 2), "auto_pad": b"SAME_UPPER", "dilations": (1 << 40, 1)}, ShapeError, "more than"),
        ("MaxPool", X > 0, {"kernel_shape": (2, 2)}, DTypeError, "bool"),
        ("AveragePool", X.astype(np.int32), {"kernel_shape": (2, 2)}, DTypeError, "floating"),
        ("LpPool", X, {"kernel_shape": (2, 2), "p": 0}, LoweringError, "not positive"),
        ("GlobalMaxPool", X[0, 0], {}, ShapeError, "no spatial axis"),
    ],
)  # fmt: skip
def test_a_wrong_pool_is_refused_in_one_line(operator, x, attributes, error, line):
    with pytest.raises(error, match=line) as caught:
        run(operator, [x], **attributes)
    assert "\n" not in caught.value.message


def test_max_unpool_is_the_inverse_of_max_pool():
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6))
    values, indices = run("MaxPool", [x], outputs=2, kernel_shape=(2, 2), strides=(2, 2))
    found = run("MaxUnpool", [values, indices], kernel_shape=(2, 2), strides=(2, 2), version=9)
    assert found.shape == x.shape
    np.testing.assert_array_equal(found.reshape(-1)[indices], values)
    assert np.count_nonzero(found) == values.size


def test_an_index_outside_fails_the_run():
    with pytest.raises(EngineError):
        run("MaxUnpool", [np.ones((1, 1, 1)), np.full((1, 1, 1), 9)], kernel_shape=(2,))


def test_max_unpool_refuses_an_output_shape_of_other_channels():
    with pytest.raises(ShapeError, match="output_shape"):
        run(
            "MaxUnpool", [np.ones((1, 1, 1)), np.zeros((1, 1, 1), int), np.array([1, 2, 4])],
            kernel_shape=(2,), known=(2,),
        )  # fmt: skip
