"""Activation functions, against their formulas in float64."""

import math

import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.reference import compute
from walle_stream.engine.lowering.activations import ACTIVATIONS
from walle_stream.engine.lowering.builder import Builder
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

X = np.array([-100, -7.5, -1, -0.25, -1e-6, 0, 1e-6, 0.25, 1, 7.5, 100], np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


ERF = np.vectorize(math.erf)
FORMULAS = {
    "Relu": (lambda x: np.maximum(x, 0), {}),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.01 * x, x), {}),
    "Elu": (lambda x: np.where(x < 0, np.exp(x) - 1, x), {}),
    "Celu": (lambda x: np.maximum(x, 0) + np.minimum(2 * (np.exp(x / 2) - 1), 0), {"alpha": 2.0}),
    "Selu": (lambda x: 1.05070102214813 * np.where(
        x > 0, x, 1.67326319217681 * (np.exp(x) - 1)), {}),
    "ThresholdedRelu": (lambda x: np.where(x > 1, x, 0), {}),
    "HardSigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), {}),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "Sigmoid": (sigmoid, {}),
    "Softplus": (softplus, {}),
    "Softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "Mish": (lambda x: x * np.tanh(softplus(x)), {}),
    "Swish": (lambda x: x * sigmoid(0.5 * x), {"alpha": 0.5}),
    "Gelu": (lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))), {}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "near"),
    [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 1e-3), (ml_dtypes.bfloat16, 1e-2)],
)
@pytest.mark.parametrize("operator", FORMULAS)
def test_it_is_its_formula(run_node, operator, dtype, near):
    formula, attributes = FORMULAS[operator]
    x = X.astype(dtype)
    (made,) = run_node(operator, [x], **attributes)
    assert made.dtype == dtype
    expected = formula(x.astype(np.float64))
    np.testing.assert_allclose(made.astype(np.float64), expected, rtol=near, atol=near * 1e-2)


@pytest.mark.parametrize("operator", FORMULAS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_any_shape_will_do(run_node, operator, shape):
    assert run_node(operator, [np.ones(shape, np.float32)])[0].shape == shape


@pytest.mark.parametrize("operator", [each for each in FORMULAS if each != "Relu"])
def test_only_floats_are_taken(run_node, operator):
    with pytest.raises(DTypeError):
        run_node(operator, [np.ones(3, np.int32)])


@pytest.mark.parametrize("operator", FORMULAS)
def test_nan_stays(run_node, operator):
    (made,) = run_node(operator, [np.array([np.nan], np.float32)])
    assert np.isnan(made[0]) == (operator != "ThresholdedRelu")


def test_softplus_keeps_the_digits_of_what_is_small(run_node):
    (made,) = run_node("Softplus", [np.array([-30, -80], np.float32)])
    np.testing.assert_allclose(made, np.exp([-30.0, -80.0]), rtol=1e-5)


@pytest.mark.parametrize(("operator", "ends"), [("Sigmoid", [0, 1]), ("Softplus", [0, np.inf])])
def test_infinite_ends_are_right(run_node, operator, ends):
    (made,) = run_node(operator, [np.array([-np.inf, np.inf], np.float32)])
    np.testing.assert_array_equal(made, ends)


@pytest.mark.parametrize("alpha", [0.0, -0.5, 1.0, 3.0])
def test_leaky_relu_of_any_slope(run_node, alpha):
    (made,) = run_node("LeakyRelu", [X], alpha=alpha)
    np.testing.assert_allclose(made, np.where(X < 0, alpha * X, X))


def test_relu_of_integers_is_exact(run_node):
    x = np.array([-(2**63), 2**62 + 1], np.int64)
    assert run_node("Relu", [x])[0].tolist() == [0, 2**62 + 1]


def test_selu_before_opset_6_has_shorter_numbers(run_node):
    (made,) = run_node("Selu", [np.array([1.0])], version=1)
    np.testing.assert_allclose(made, [1.0507], rtol=1e-12)


def test_p_relu_before_opset_7_has_a_slope_a_channel(run_node):
    x = -np.ones((2, 3, 4), np.float32)
    slope = np.array([1, 2, 3], np.float32)
    (made,) = run_node("PRelu", [x, slope], version=6)
    np.testing.assert_array_equal(made, x * slope.reshape(3, 1))


def test_p_relu_of_whole_numbers_is_exact(run_node):
    x, slope = np.array([-3, 2**62 + 1], np.int64), np.array([5, 7], np.int64)
    assert run_node("PRelu", [x, slope])[0].tolist() == [-15, 2**62 + 1]


@pytest.mark.parametrize("slope", [[0.1, 1.0], [0.0, 0.5], [0.5, 2.0], [-0.5, 0.5]])
def test_p_relu_of_any_slope_bends_below_zero_alone(run_node, slope):
    x = np.array([[-2, 3], [np.inf, -0.5], [np.nan, np.inf]], np.float32)
    slopes = np.array(slope, np.float32)
    (made,) = run_node("PRelu", [x, slopes])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made, np.where(x < 0, x * slopes, x))


def test_p_relu_does_not_grow(run_node):
    with pytest.raises(ShapeError):
        run_node("PRelu", [np.ones(3, np.float32), np.ones((2, 3), np.float32)])


def test_swi_glu_multiplies_by_a_gate(run_node):
    gate, x = X.astype(np.float32), np.arange(11, dtype=np.float32)
    (made,) = run_node("SwiGLU", [gate, x], alpha=2.0)
    np.testing.assert_allclose(made, X * sigmoid(2.0 * X) * x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("gate", "error"), [(np.ones((1, 3), "f4"), ShapeError), (np.ones(3), DTypeError)]
)
def test_swi_glu_does_not_spread(run_node, gate, error):
    with pytest.raises(error):
        run_node("SwiGLU", [gate, np.ones(3, np.float32)])


def test_gelu_by_tanh(run_node):
    (made,) = run_node("Gelu", [X], approximate=b"tanh")
    inner = math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)
    np.testing.assert_allclose(made, 0.5 * X * (1 + np.tanh(inner)), atol=1e-12)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [("Gelu", {"approximate": b"sin"}), ("Celu", {"alpha": 0.0}), ("Elu", {"alpha": b"x"})],
)
def test_wrong_attributes_are_refused(run_node, operator, attributes):
    with pytest.raises(LoweringError):
        run_node(operator, [X], **attributes)


def test_a_missing_input_is_refused(run_node):
    with pytest.raises(EngineError):
        run_node("Sigmoid", [])


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "expected"),
    [
        ("Affine", 2.0, 3.0, 2 * X + 3),
        ("ScaledTanh", 2.0, 0.5, 2 * np.tanh(0.5 * X)),
        ("HardSigmoid", None, None, np.clip(0.2 * X + 0.5, 0, 1)),
        ("LeakyRelu", 0.2, None, np.where(X < 0, 0.2 * X, X)),
        ("Tanh", None, None, np.tanh(X)),
        ("Relu", 5.0, 5.0, np.maximum(X, 0)),
    ],
)
def test_recurrent_layers_name_their_activations(name, alpha, beta, expected):
    builder = Builder(compute)
    function, defaults = ACTIVATIONS[name]
    pairs = zip(defaults, (alpha, beta), strict=False)
    parameters = [default if given is None else given for default, given in pairs]
    made = function(builder, builder.constant(X), *parameters)
    np.testing.assert_allclose(builder.value(made), expected)
