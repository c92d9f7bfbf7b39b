"""Normalizations beyond ONNX's own cases: older opsets, modes, narrow floats, nothing."""

import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


def _random(*shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


def _softmax(x, axis):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _standard(x, axis, epsilon=1e-5):
    variance = np.var(x, axis=axis, keepdims=True)
    return (x - np.mean(x, axis=axis, keepdims=True)) / np.sqrt(variance + epsilon)


def test_softmax_before_opset_13_is_of_all_axes_from_one_on(run_node):
    x = _random(2, 3, 4, dtype=np.float64)
    for axis in (0, 1, -1):
        axes = tuple(range(axis % 3, 3))
        (made,) = run_node("Softmax", [x], version=11, axis=axis)
        np.testing.assert_allclose(made, _softmax(x, axes))
        (made,) = run_node("LogSoftmax", [x], version=1, axis=axis)
        np.testing.assert_allclose(made, np.log(_softmax(x, axes)))


def test_softmax_of_a_wide_row_of_float16_does_not_overflow(run_node):
    (made,) = run_node("Softmax", [np.zeros((1, 70000), np.float16)])
    np.testing.assert_array_equal(made, np.full((1, 70000), np.float16(1 / 70000)))


def test_logarithms_of_tiny_shares_are_finite(run_node):
    (made,) = run_node("LogSoftmax", [np.array([[0, -1000]], np.float32)])
    np.testing.assert_array_equal(made, [[0, -1000]])


def test_few_steps_for_what_transformers_are_made_of(count_steps):
    x, scale = _random(2, 4, 8), _random(8)
    assert count_steps("Softmax", [x]) == 5
    assert count_steps("LayerNormalization", [x, scale, scale], known=(1, 2)) == 12
    assert count_steps("RMSNormalization", [x, scale], known=(1,)) == 8
    image = _random(2, 3, 4, 4)
    channel = np.abs(_random(3))
    assert count_steps("BatchNormalization", [image] + [channel] * 4, known=range(1, 5)) == 2


@pytest.mark.parametrize("version", [1, 6, 7, 9, 14, 15])
def test_batch_normalization_with_given_statistics(run_node, version):
    x, given = _random(2, 3, 4), [np.abs(_random(3)) + number for number in range(4)]
    kind = {"is_test": 1} if version < 7 else {}
    (made,) = run_node("BatchNormalization", [x, *given], version=version, epsilon=0.01, **kind)
    scale, bias, mean, variance = (each[:, None] for each in given)
    wanted = (x - mean) / np.sqrt(variance + 0.01) * scale + bias
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", [1, 6, 7, 9, 14, 15])
def test_batch_normalization_that_trains(run_node, version):
    x, given = _random(4, 3, 5), [np.abs(_random(3)) + number for number in range(4)]
    kind = {"training_mode": 1, "outputs": 3} if version >= 14 else {"outputs": 5}
    made = run_node("BatchNormalization", [x, *given], version=version, momentum=0.75, **kind)
    scale, bias, mean, variance = given
    wanted = _standard(x, (0, 2)) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(made[0], wanted, rtol=1e-4, atol=1e-5)
    current_mean, current_variance = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(made[1], mean * 0.75 + current_mean * 0.25, rtol=1e-5)
    np.testing.assert_allclose(made[2], variance * 0.75 + current_variance * 0.25, rtol=1e-5)
    if version < 14:
        np.testing.assert_allclose(made[3], current_mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(made[4], current_variance, rtol=1e-5)


def test_batch_normalization_of_each_feature(run_node):
    x, given = _random(4, 3, 2), [np.abs(_random(3, 2))] * 4
    (made,) = run_node("BatchNormalization", [x, *given], version=7, spatial=0)
    wanted = (x - given[2]) / np.sqrt(given[3] + 1e-5) * given[0] + given[1]
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
    made = run_node("BatchNormalization", [x, *given], version=7, spatial=0, outputs=5)
    np.testing.assert_allclose(made[3], x.mean(0), rtol=1e-5, atol=1e-6)


def test_batch_normalization_of_a_single_axis_is_of_one_channel(run_node):
    x, one = _random(6), np.array([2], np.float32)
    made = run_node("BatchNormalization", [x, one, one, one, one], training_mode=1, outputs=3)
    np.testing.assert_allclose(made[0], _standard(x, 0) * 2 + 2, rtol=1e-5)


def test_batch_normalization_of_mixed_floats(run_node):
    x, wide = _random(2, 3, dtype=np.float16), np.full(3, 0.5, np.float32)
    (made,) = run_node("BatchNormalization", [x, wide, wide, wide, wide])
    assert made.dtype == np.float16


def test_group_normalization_scales_groups_first_and_channels_later(run_node):
    x = _random(2, 4, 3)
    normal = _standard(x.reshape(2, 2, 2, 3), (2, 3))
    scale = np.array([2, 3], np.float32)
    (made,) = run_node("GroupNormalization", [x, scale, scale], version=18, num_groups=2)
    wanted = normal * scale[:, None, None] + scale[:, None, None]
    np.testing.assert_allclose(made, wanted.reshape(x.shape), rtol=1e-4, atol=1e-5)
    scale = np.arange(4, dtype=np.float32)
    (made,) = run_node("GroupNormalization", [x, scale, scale], version=21, num_groups=2)
    wanted = normal.reshape(x.shape) * scale[:, None] + scale[:, None]
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_layer_normalization_gives_what_it_computed_in(run_node, dtype):
    x, scale = _random(3, 4, 5, dtype=dtype), np.full((4, 5), 2, dtype)
    y, mean, inverse = run_node(
        "LayerNormalization", [x, scale], axis=1, outputs=3, version=17, stash_type=1
    )
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, np.float32, np.float32)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((1, 2), keepdims=True), rtol=1e-4, atol=1e-6)
    deviation = np.sqrt(exact.var((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(inverse, 1 / deviation, rtol=1e-5)
    tolerance = {2: 2**-7, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(y.astype(np.float64), _standard(exact, (1, 2)) * 2, rtol=tolerance)


def test_rms_normalization_has_the_dtype_of_its_scale(run_node):
    x, scale = _random(2, 4, dtype=np.float16), np.ones(4, np.float32)
    (made,) = run_node("RMSNormalization", [x, scale])
    wide = x.astype(np.float32)
    wanted = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("power", [1, 2])
def test_a_row_of_zeros_has_no_norm_to_divide_by(run_node, power):
    x = np.array([[3, -4], [0, 0]], np.float32)
    (made,) = run_node("LpNormalization", [x], p=power)
    np.testing.assert_allclose(made, [x[0] / (7 if power == 1 else 5), [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 2**40])
def test_local_response_sums_a_window_of_channels(run_node, size):
    x = _random(2, 5, 3, dtype=np.float64)
    (made,) = run_node("LRN", [x], size=size, alpha=3.0, beta=0.5, bias=2.0)
    for channel in range(5):
        first, last = channel - (size - 1) // 2, channel + size // 2
        total = (x[:, max(first, 0) : last + 1] ** 2).sum(1)
        wanted = x[:, channel] / np.sqrt(2 + 3 / size * total)
        np.testing.assert_allclose(made[:, channel], wanted)


def test_instances_and_axes_are_normalized(run_node):
    x = _random(2, 3, 4, 5)
    scale = np.array([1, 2, 3], np.float32)
    (made,) = run_node("InstanceNormalization", [x, scale, scale])
    wanted = _standard(x, (2, 3)) * scale[:, None, None] + scale[:, None, None]
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
    (made,) = run_node("MeanVarianceNormalization", [x], axes=(-1,))
    np.testing.assert_allclose(made, _standard(x, 3, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "count", "given"),
    [
        ("Softmax", 0, {}), ("LogSoftmax", 0, {"version": 1}), ("InstanceNormalization", 2, {}),
        ("GroupNormalization", 2, {"num_groups": 1}), ("LayerNormalization", 1, {}),
        ("BatchNormalization", 4, {}), ("LRN", 0, {"size": 3}), ("LpNormalization", 0, {}),
    ],
)  # fmt: skip
def test_nothing_is_normalized_to_nothing(run_node, operator, count, given):
    x, weights = np.zeros((0, 3, 3), np.float32), [np.ones(3, np.float32)] * count
    assert run_node(operator, [x, *weights], **given)[0].shape == (0, 3, 3)


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "error", "words"),
    [
        ("Softmax", [np.ones(3, np.int32)], {}, DTypeError, "not int32"),
        ("Softmax", [np.float32(3)], {}, ShapeError, "no axis -1 of 0"),
        ("BatchNormalization", [np.ones((2, 3))] + [np.ones(2)] * 4, {}, ShapeError, "is not of"),
        ("BatchNormalization", [np.float32(1)] + [np.ones(1)] * 4, {}, ShapeError, "scalar"),
        ("InstanceNormalization", [np.ones(3)] + [np.ones(3)] * 2, {}, ShapeError, "no axis of"),
        ("GroupNormalization", [np.ones((1, 4))] * 3, {"num_groups": 3}, ShapeError, "3 groups"),
        ("GroupNormalization", [np.ones((1, 4))] * 3, {}, LoweringError, "'num_groups'"),
        (
            "LayerNormalization",
            [np.ones((2, 3)), np.ones(2)],
            {},
            ShapeError,
            "cannot be broadcast",
        ),
        (
            "LayerNormalization",
            [np.ones((2, 3)), np.ones((4, 2, 3))],
            {},
            ShapeError,
            "be broadcast",
        ),
        ("LayerNormalization", [np.ones(3)] * 2, {"stash_type": 7}, LoweringError, "type 7"),
        ("LpNormalization", [np.ones(3)], {"p": 3}, LoweringError, "order 3"),
        ("LRN", [np.ones((1, 3))], {"size": 0}, ShapeError, "window of 0"),
        ("LRN", [np.ones(3)], {"size": 1}, ShapeError, "no axis of channels"),
        ("MeanVarianceNormalization", [np.ones(3)], {}, ShapeError, "no axis 2 of 1"),
        ("RMSNormalization", [np.ones(3)], {}, EngineError, "input 1 is missing"),
    ],
)
def test_bad_input_is_named(run_node, operator, inputs, given, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given)
