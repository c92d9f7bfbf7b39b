"""Convolutions and what is near them, against sums that are written out."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.unit.engine.lowering.nodes import run
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.lowering import convolution, transposed
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.convolution import convolve
from walle_stream.engine.lowering.windows import placed
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


def convolved(x, w, strides, dilations, pads, group):
    rank, count = len(strides), w.shape[0] // group
    border = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    output = [(n - r) // s + 1 for n, r, s in zip(border.shape[2:], reach, strides, strict=True)]
    made = np.zeros((x.shape[0], w.shape[0], *output), x.dtype)
    for place in itertools.product(*map(range, output)):
        box = tuple(
            slice(at * s, at * s + r, d)
            for at, s, r, d in zip(place, strides, reach, dilations, strict=True)
        )
        seen = border[(slice(None), slice(None), *box)]
        for channel in range(w.shape[0]):
            first = channel // count * w.shape[1]
            part = seen[:, first : first + w.shape[1]]
            total = (part * w[channel]).reshape(x.shape[0], -1).sum(1)
            made[(slice(None), channel, *place)] = total
    return made


def spread(x, w, strides, dilations, pads, group, extra):
    rank, depth = len(strides), w.shape[1]
    full = [
        s * (n - 1) + (k - 1) * d + 1 + more
        for n, s, k, d, more in zip(
            x.shape[2:], strides, w.shape[2:], dilations, extra, strict=True
        )
    ]
    made = np.zeros((x.shape[0], depth * group, *full), x.dtype)
    for place in itertools.product(*map(range, x.shape[2:])):
        for tap in itertools.product(*map(range, w.shape[2:])):
            at = tuple(
                p * s + t * d for p, s, t, d in zip(place, strides, tap, dilations, strict=True)
            )
            for channel in range(x.shape[1]):
                first = channel // (x.shape[1] // group) * depth
                made[(slice(None), slice(first, first + depth), *at)] += (
                    x[(slice(None), channel, *place)][:, None] * w[(channel, slice(None), *tap)]
                )
    kept = (slice(a, n - b) for a, b, n in zip(pads[:rank], pads[rank:], full, strict=True))
    return made[(slice(None), slice(None), *kept)]


CASES = [
    # channels of x, shape of w, strides, dilations, pads, group
    pytest.param(((2, 3, 9), (4, 3, 3), (2,), (1,), (1, 0), 1), id="1-D"),
    pytest.param(((1, 4, 6, 5), (2, 4, 1, 1), (1, 1), (1, 1), (0,) * 4, 1), id="kernel of 1"),
    pytest.param(((2, 4, 6, 5), (2, 4, 1, 1), (2, 3), (1, 1), (1, 0, 0, 2), 1), id="1, strided"),
    pytest.param(((2, 3, 6, 7), (4, 3, 3, 2), (1, 2), (1, 2), (1, 2, 0, 1), 1), id="general"),
    pytest.param(((1, 6, 6, 7), (4, 3, 3, 2), (2, 1), (1, 1), (1, 1, 1, 1), 2), id="grouped"),
    pytest.param(((2, 3, 6, 7), (3, 1, 3, 3), (2, 1), (1, 2), (1, 2, 1, 2), 3), id="depthwise"),
    pytest.param(((2, 3, 6, 7), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3), id="two a channel"),
    pytest.param(((2, 2, 1, 80), (2, 1, 1, 70), (1, 1), (1, 1), (0,) * 4, 2), id="many taps"),
    pytest.param(
        ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), (1,) * 3, (1, 0, 1, 0, 1, 0), 1), id="3-D"
    ),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [1 << 25, 40])
def test_conv_is_a_sum_over_taps(monkeypatch, case, most):
    shape, weights, strides, dilations, pads, group = case
    monkeypatch.setattr(convolution, "PATCHES_MAX", most)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(each) for each in (shape, weights, weights[0]))
    found = run("Conv", [x, w, b], strides=strides, dilations=dilations, pads=pads, group=group)
    expected = convolved(x, w, strides, dilations, pads, group)
    expected += b.reshape(-1, *(1,) * len(strides))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("gathers", [True, False])
def test_conv_transpose_spreads_each_element(monkeypatch, case, gathers):
    shape, weights, strides, dilations, pads, group = case
    monkeypatch.setattr(transposed, "_gathered_work", lambda *_: 0 if gathers else 1e99)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape), rng.standard_normal((shape[1], 2, *weights[2:]))
    extra = tuple(max(s, d) - 1 for s, d in zip(strides, dilations, strict=True))
    found = run(
        "ConvTranspose", [x, w], strides=strides, dilations=dilations, pads=pads, group=group,
        output_padding=extra,
    )  # fmt: skip
    expected = spread(x, w, strides, dilations, pads, group, extra)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("mode", "before"), [(b"SAME_UPPER", 0), (b"SAME_LOWER", 1)])
def test_the_odd_element_of_same_is_behind_for_upper(mode, before):
    x, w = np.arange(1.0, 5).reshape(1, 1, 4), np.ones((1, 1, 2))
    expected = convolved(x, w, (1,), (1,), (before, 1 - before), 1)
    np.testing.assert_array_equal(run("Conv", [x, w], auto_pad=mode, version=1), expected)


def test_an_output_shape_beyond_the_natural_one_is_filled_with_the_bias():
    x, w, b = np.ones((1, 1, 2)), np.ones((1, 1, 1)), np.array([7.0])
    found = run("ConvTranspose", [x, w, b], strides=(2,), output_shape=(4,))
    np.testing.assert_array_equal(found, [[[8, 7, 8, 7]]])


def test_integers_are_convolved_exactly():
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**20), 2**20, (1, 3, 5, 5), np.int32)
    w = rng.integers(-200, 200, (2, 3, 3, 3), np.int32)
    builder = Builder(compute)
    window = placed((5, 5), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    made = convolve(builder, builder.constant(x), builder.constant(w), window, 1)
    np.testing.assert_array_equal(
        builder.value(made), convolved(x, w, (1, 1), (1, 1), (1, 1, 1, 1), 1)
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_depthwise_sums_are_rounded_once(dtype):
    x = np.full((1, 2, 1, 64), 1, dtype)
    w = np.full((2, 1, 1, 64), 1.0078125, dtype)
    found = run("Conv", [x, w], group=2)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float64), np.full((1, 2, 1, 1), 64.5))


def test_a_kernel_of_1_moves_no_patches():
    builder = Builder(compute)
    x = Tensor((1, 4, 8, 8), np.dtype(np.float32))
    w = builder.constant(np.ones((2, 4, 1, 1), np.float32))
    convolve(builder, x, w, placed((8, 8), (1, 1), (1, 1), (1, 1), (0,) * 4), 1)
    kinds = [step.operator for step in builder.steps]
    raster = Operator.RASTER  # to channels-last, to a matrix, from it, to channels-first
    assert kinds == [raster, raster, Operator.MATMUL, raster, raster]


def test_padded_patches_are_one_region():
    builder = Builder(compute)
    x = Tensor((1, 4, 8, 8), np.dtype(np.float32))
    w = builder.constant(np.ones((2, 4, 3, 3), np.float32))
    convolve(builder, x, w, placed((8, 8), (3, 3), (1, 1), (1, 1), (1,) * 4), 1)
    assert all(len(step.regions) == 1 for step in builder.steps if step.operator is Operator.RASTER)


@pytest.mark.parametrize(
    ("x", "w", "expected"),
    [
        ((0, 2, 4, 4), (3, 2, 3, 3), (0, 3, 2, 2)),
        ((2, 2, 4, 4), (0, 2, 3, 3), (2, 0, 2, 2)),
        ((2, 0, 4, 4), (3, 0, 3, 3), (2, 3, 2, 2)),
        ((2, 2, 0, 4), (3, 2, 1, 1), (2, 3, 0, 4)),
    ],
)
def test_empty_tensors_are_convolved(x, w, expected):
    found = run("Conv", [np.ones(x), np.ones(w), np.ones(w[0])])
    np.testing.assert_array_equal(found, np.ones(expected))


def test_an_empty_batch_is_spread():
    found = run("ConvTranspose", [np.ones((0, 2, 4)), np.ones((2, 3, 2))], strides=(2,))
    assert found.shape == (0, 3, 8)


X, W = np.ones((1, 2, 5, 5)), np.ones((2, 2, 3, 3))


@pytest.mark.parametrize(
    ("inputs", "attributes", "error", "line"),
    [
        ([X, W], {"strides": (0, 1)}, ShapeError, r"strides \[0, 1\]: 2 numbers of at least 1"),
        ([X, W], {"pads": (1, 1)}, ShapeError, "4 numbers of at least 0"),
        ([X, W], {"pads": (0, 0, 0, -1)}, ShapeError, "4 numbers of at least 0"),
        ([X, W], {"group": 3}, ShapeError, "in 3 groups for 2 channels"),
        ([X, W], {"group": 0}, ShapeError, "in 0 groups"),
        ([X, W], {"dilations": (3, 1)}, ShapeError, "wider than 5 elements"),
        ([X, W], {"kernel_shape": (2, 2)}, ShapeError, "kernel_shape"),
        ([X, W], {"auto_pad": b"SOME"}, LoweringError, "'auto_pad' is 'SOME'"),
        ([X, W], {"pads": (1 << 40,) * 4}, ShapeError, "more than"),
        ([X, W, np.ones(3)], {}, ShapeError, "a bias of shape"),
        ([X, np.ones((2, 2, 3))], {}, ShapeError, "for 2 spatial axes"),
        ([np.ones((1, 2)), np.ones((2, 2))], {}, ShapeError, "no spatial axis"),
        ([X.astype(np.int32), W], {}, DTypeError, "floating"),
        ([X, W.astype(np.float32)], {}, DTypeError, "float32"),
        ([X], {}, LoweringError, "input 1 is missing"),
    ],
)
def test_a_wrong_convolution_is_refused_in_one_line(inputs, attributes, error, line):
    with pytest.raises(error, match=line) as caught:
        run("Conv", inputs, **attributes)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("inputs", "attributes", "line"),
    [
        ([X, W], {"pads": (9, 9, 9, 9)}, "leave nothing"),
        ([X, W], {"output_shape": (4,)}, "output_shape"),
        ([X, W], {"output_padding": (-1, 0)}, "output_padding"),
        ([X, W], {"strides": (1 << 40, 1)}, "more than"),
        ([X, np.ones((3, 2, 3, 3))], {}, "weights of shape"),
    ],
)
def test_a_wrong_transposed_convolution_is_refused(inputs, attributes, line):
    with pytest.raises(ShapeError, match=line):
        run("ConvTranspose", inputs, **attributes)


def test_col2im_sums_where_blocks_overlap():
    columns = np.ones((1, 2, 3))
    found = run("Col2Im", [columns, np.array([1, 4]), np.array([1, 2])], known=(1, 2))
    np.testing.assert_array_equal(found, [[[[1, 2, 2, 1]]]])


def test_col2im_of_many_taps_has_a_region_a_block():
    columns = np.arange(1000).reshape(1, 1000, 1)
    found = run("Col2Im", [columns, np.array([10, 100]), np.array([10, 100])], known=(1, 2))
    np.testing.assert_array_equal(found.reshape(-1), np.arange(1000))


def test_col2im_refuses_columns_of_another_number():
    with pytest.raises(ShapeError, match="for blocks"):
        run("Col2Im", [np.ones((1, 2, 5)), np.array([1, 4]), np.array([1, 2])], known=(1, 2))


def test_deform_conv_without_offsets_is_conv():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((2, 2, 3, 2))
    offset = np.zeros((2, 2 * 6 * 2, 3, 5))
    found = run("DeformConv", [x, w, offset], group=2, offset_group=2, version=19)
    np.testing.assert_allclose(found, convolved(x, w, (1, 1), (1, 1), (0,) * 4, 2), atol=1e-12)


def test_deform_conv_of_one_axis_reads_between_elements():
    x, w = np.array([[[1.0, 3, 5]]]), np.ones((1, 1, 1))
    offset = np.array([[[0.5, -0.5, 0.5]]])
    np.testing.assert_allclose(run("DeformConv", [x, w, offset]), [[[2, 2, 2.5]]])


def test_deform_conv_far_outside_is_zero():
    x, w = np.ones((1, 1, 2, 2)), np.ones((1, 1, 1, 1))
    offset = np.full((1, 2, 2, 2), 1e30)
    np.testing.assert_array_equal(run("DeformConv", [x, w, offset]), np.zeros((1, 1, 2, 2)))


def test_deform_conv_refuses_offsets_of_another_shape():
    with pytest.raises(EngineError, match="offsets of shape"):
        run("DeformConv", [X, W, np.zeros((1, 18, 2, 2))])
