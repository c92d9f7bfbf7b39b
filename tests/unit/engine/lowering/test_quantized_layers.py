"""Layers of com.microsoft between 8-bit numbers, against the real numbers that these stand for."""

import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError

MICROSOFT = {"domain": "com.microsoft", "version": 1}
_DTYPES = [np.uint8, np.int8]


def _bytes(dtype, *shape):
    limits = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(limits.min, limits.max, shape, dtype)


def _operand(dtype, x, scale, zero):
    return [x, np.float32(scale), None if zero is None else np.array([zero], dtype)]


def _real(x, scale, zero):
    return (x.astype(np.float64) - (zero or 0)) * np.float64(np.float32(scale))


def _near(made, wanted, scale, zero):
    # the nearest step, where float32 may fall on the other side of a half
    limits = np.iinfo(made.dtype)
    steps = np.clip(wanted / np.float64(np.float32(scale)) + (zero or 0), limits.min, limits.max)
    assert made.shape == wanted.shape
    assert np.abs(made - steps).max(initial=0) <= 0.5 + 1e-4


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("zeros", [(3, 5, 7), (None, None, None)])
@pytest.mark.parametrize("other", [(2, 3, 40), (40,), (1,)])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products(run_node, dtype, zeros, other, operator):
    x, y = _bytes(dtype, 2, 3, 40), _bytes(dtype, *other)
    inputs = [*_operand(dtype, x, 0.03, zeros[0]), *_operand(dtype, y, 0.02, zeros[1])]
    inputs += _operand(dtype, None, 0.05, zeros[2])[1:]
    (made,) = run_node(operator, inputs, **MICROSOFT)
    assert made.dtype == dtype
    left, right = _real(x, 0.03, zeros[0]), _real(y, 0.02, zeros[1])
    _near(made, left + right if operator == "QLinearAdd" else left * right, 0.05, zeros[2])


_FUNCTIONS = {
    "QLinearSigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "QLinearLeakyRelu": ({"alpha": 0.2}, lambda x: np.where(x < 0, 0.2 * x, x)),
}


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("zeros", [(3, 5), (None, None)])
@pytest.mark.parametrize("operator", _FUNCTIONS)
def test_functions_of_all_bytes(run_node, dtype, zeros, operator):
    given, function = _FUNCTIONS[operator]
    x = np.arange(256, dtype=np.uint8).view(dtype).reshape(2, 128)
    inputs = [*_operand(dtype, x, 0.03, zeros[0]), *_operand(dtype, None, 0.04, zeros[1])[1:]]
    (made,) = run_node(operator, inputs, **given, **MICROSOFT)
    assert made.dtype == dtype
    _near(made, function(_real(x, 0.03, zeros[0])), 0.04, zeros[1])


def test_a_function_takes_few_steps(count_steps):
    inputs = [*_operand(np.uint8, _bytes(np.uint8, 9, 9), 0.03, 3), np.float32(0.04), np.uint8(5)]
    assert count_steps("QLinearSigmoid", inputs, known=range(1, 5), **MICROSOFT) == 2


@pytest.mark.parametrize("dtype", _DTYPES)
def test_operands_are_joined_in_the_scale_of_the_output(run_node, dtype):
    x, y = _bytes(dtype, 2, 3), _bytes(dtype, 4, 3)
    parts = [*_operand(dtype, x, 0.03, 1), *_operand(dtype, y, 0.04, 7)]
    (made,) = run_node(
        "QLinearConcat", [np.float32(0.04), dtype(7), *parts], axis=-2, **MICROSOFT
    )  # fmt: skip
    _near(made, np.concatenate([_real(x, 0.03, 1), _real(y, 0.04, 7)]), 0.04, 7)
    np.testing.assert_array_equal(made[2:], y)
    chosen = np.array([True, False, True])
    inputs = [chosen, *_operand(dtype, x, 0.03, 1), *_operand(dtype, y[:2], 0.04, 7)]
    (made,) = run_node("QLinearWhere", [*inputs, np.float32(0.05), dtype(2)], **MICROSOFT)
    _near(made, np.where(chosen, _real(x, 0.03, 1), _real(y[:2], 0.04, 7)), 0.05, 2)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("is_last", [0, 1])
def test_means_of_windows_and_of_all(run_node, dtype, is_last):
    x = _bytes(dtype, 2, 3, 4, 6)
    given = np.moveaxis(x, 1, -1) if is_last else x
    inputs = [*_operand(dtype, given, 0.03, 1), np.float32(0.02), dtype(7)]
    windows = {"kernel_shape": (2, 3), "strides": (2, 3), "channels_last": is_last, **MICROSOFT}
    (made,) = run_node("QLinearAveragePool", inputs, **windows)
    made = np.moveaxis(made, -1, 1) if is_last else made
    real = _real(x, 0.03, 1)
    _near(made, real.reshape(2, 3, 2, 2, 2, 3).mean((3, 5)), 0.02, 7)
    (made,) = run_node("QLinearGlobalAveragePool", inputs, channels_last=is_last, **MICROSOFT)
    made = np.moveaxis(made, -1, 1) if is_last else made
    _near(made, real.mean((2, 3), keepdims=True), 0.02, 7)


@pytest.mark.parametrize(("opset", "axes"), [(13, (1,)), (12, (1, 2))])
def test_shares_are_of_the_axes_of_their_opset(run_node, opset, axes):
    x = _bytes(np.uint8, 2, 3, 4)
    inputs = [*_operand(np.uint8, x, 0.05, 1), np.float32(1 / 256), np.uint8(0)]
    (made,) = run_node("QLinearSoftmax", inputs, opset=opset, axis=1, **MICROSOFT)
    powers = np.exp(_real(x, 0.05, 1))
    _near(made, powers / powers.sum(axes, keepdims=True), 1 / 256, 0)


def test_linear_quantisation_has_a_second_domain(run_node):
    x = np.array([-1.5, 0.25, 300], np.float32)
    (made,) = run_node("QuantizeLinear", [x, np.float32(0.5), np.int16(3)], **MICROSOFT)
    np.testing.assert_array_equal(made, np.array([0, 3, 603], np.int16))
    (back,) = run_node("DequantizeLinear", [made, np.float32(0.5), np.int16(3)], **MICROSOFT)
    np.testing.assert_array_equal(back, [-1.5, 0, 300])


_X, _S, _Z = np.ones((2, 3), np.uint8), np.float32(1), np.uint8(0)


@pytest.mark.parametrize(
    ("operator", "inputs", "error", "words"),
    [
        ("QLinearAdd", [_X, _S, _Z, _X[:, :2], _S, _Z, _S, _Z], ShapeError, "do not fit"),
        ("QLinearMul", [_X, _S, _Z], LoweringError, "input 3 is missing"),
        ("QLinearSigmoid", [_X.astype(np.int16), _S, None, _S], DTypeError, "8 bits, not int16"),
        ("QLinearSigmoid", [_X, _S, np.int8(0), _S, _Z], DTypeError, "a zero point of int8"),
        ("QLinearLeakyRelu", [_X, np.ones(2, np.float32), _Z, _S], ShapeError, "not a scalar"),
        ("QLinearConcat", [_S, _Z], LoweringError, "2 inputs"),
        ("QLinearConcat", [_S, _Z, _X, _S, _Z, _X], LoweringError, "6 inputs"),
        ("QLinearGlobalAveragePool", [_X, _S, _Z, _S, _Z], ShapeError, "no spatial axis"),
        ("QLinearSoftmax", [_X, _S, _Z, _S, _Z], LoweringError, "'opset'"),
    ],
)
def test_bad_input_is_named(run_node, operator, inputs, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, axis=0, **MICROSOFT)
