"""Joined operators of com.microsoft, against the operators that they join, written with numpy."""

import math

import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

MICROSOFT = {"domain": "com.microsoft", "version": 1}


def _random(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _close(made, wanted, tolerance=1e-5):
    np.testing.assert_allclose(
        made.astype(np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


def _transposed(x, *, batch, plain):
    x = np.moveaxis(x, 0, -2) if batch else x
    return x.swapaxes(-1, -2) if plain else x


@pytest.mark.parametrize("plain", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("batch", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("operator", ["FusedMatMul", "TransposeMatMul"])
def test_a_product_of_transposed_matrices(run_node, operator, plain, batch):
    # of equal sizes, so that every way to transpose fits
    x, y = _random(3, 3, 3), _random(3, 3, 3) + 1
    (made,) = run_node(
        operator, [x, y], alpha=0.5, transA=plain[0], transB=plain[1], transBatchA=batch[0],
        transBatchB=batch[1], **MICROSOFT,
    )  # fmt: skip
    left, right = (
        _transposed(each, batch=batch[number], plain=plain[number])
        for number, each in enumerate((x, y))
    )
    _close(made, 0.5 * left @ right)


def test_a_product_with_a_vector_that_is_not_transposed(run_node):
    x, y = _random(4), _random(4, 3)
    (made,) = run_node("FusedMatMul", [x, y], transA=1, transBatchA=1, **MICROSOFT)
    _close(made, x @ y)


_ACTIVATIONS = {
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "Tanh": ({}, np.tanh),
    "Sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "LeakyRelu": ((0.2,), lambda x: np.where(x < 0, 0.2 * x, x)),
    "HardSigmoid": ((0.3, 0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
}


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_an_activation_after_a_product(run_node, name):
    given, function = _ACTIVATIONS[name]
    parameters = dict(zip(("activation_alpha", "activation_beta"), given, strict=False))
    x, y, bias = _random(2, 4), _random(3, 4), _random(3)
    (made,) = run_node(
        "FusedGemm", [x, y, bias], transB=1, alpha=0.5, beta=2.0, activation=name.encode(),
        **parameters, **MICROSOFT,
    )  # fmt: skip
    _close(made, function(0.5 * x @ y.T + 2 * bias))


@pytest.mark.parametrize("name", [*_ACTIVATIONS, "Clip", ""])
@pytest.mark.parametrize("is_added", [False, True])
def test_an_activation_after_a_convolution_and_a_sum(run_node, name, is_added):
    given, function = _ACTIVATIONS.get(name, ((), lambda x: x))
    if name == "Clip":
        given, function = (-0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)
    x, w, bias, other = _random(2, 3, 5), _random(4, 3, 1), _random(4), _random(2, 4, 3)
    inputs = [x, w, bias, *([other] if is_added else [])]
    attributes = {"activation": name.encode(), "activation_params": tuple(given)}
    (made,) = run_node("FusedConv", inputs, strides=(2,), **attributes, **MICROSOFT)
    wanted = np.einsum("nct,oc->not", x[:, :, ::2], w[:, :, 0]) + bias[:, None]
    _close(made, function(wanted + (other if is_added else 0)), 1e-4)


def _gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def _fast_gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gelu_and_its_approximations(run_node, dtype):
    x, bias = _random(2, 3, 4, dtype=dtype), _random(4, dtype=dtype)
    wide, total = x.astype(np.float64), x.astype(np.float64) + bias
    tolerance = 2**-9 if dtype == np.float16 else 1e-6
    cases = [
        ("Gelu", [x], {}, _gelu(wide)),
        ("BiasGelu", [x, bias], {}, _gelu(total)),
        ("FastGelu", [x], {}, _fast_gelu(wide)),
        ("FastGelu", [x, bias], {}, _fast_gelu(total)),
        ("QuickGelu", [x], {}, wide / (1 + np.exp(-1.702 * wide))),
        ("QuickGelu", [x], {"alpha": -0.5}, wide / (1 + np.exp(0.5 * wide))),
    ]
    for operator, inputs, given, wanted in cases:
        (made,) = run_node(operator, inputs, **given, **MICROSOFT)
        assert made.dtype == dtype
        _close(made, wanted, tolerance)


def test_a_bias_and_a_residual(run_node):
    x, bias, skip = _random(2, 3, 4), _random(4), _random(2, 3, 4) + 1
    (made,) = run_node("BiasAdd", [x, bias, skip], **MICROSOFT)
    _close(made, x + bias + skip)


def _standard(x, epsilon):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("has", [(True, True), (False, True), (True, False), (False, False)])
def test_a_residual_is_normalized(run_node, dtype, skip, has):
    x, other, scale = (_random(*shape, dtype=dtype) for shape in ((2, 3, 8), skip, (8,)))
    beta, bias = (_random(8, dtype=dtype) + 1 if each else None for each in has)
    y, mean, inverse, total = run_node(
        "SkipLayerNormalization", [x, other, scale, beta, bias], outputs=4, epsilon=0.01,
        **MICROSOFT,
    )  # fmt: skip
    wanted = x.astype(np.float64) + other + (0 if bias is None else bias)
    tolerance = 2**-7 if dtype == np.float16 else 1e-5
    assert (y.dtype, total.dtype, mean.dtype) == (dtype, dtype, np.float32)
    _close(total, wanted, tolerance)
    _close(mean, wanted.mean(-1, keepdims=True), tolerance)
    _close(inverse, 1 / np.sqrt(wanted.var(-1, keepdims=True) + 0.01), tolerance)
    _close(y, _standard(wanted, 0.01) * scale + (0 if beta is None else beta), tolerance)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_residual_is_divided_by_its_root_mean_square(run_node, has_bias):
    x, other, scale, bias = _random(3, 8), _random(3, 8) + 1, _random(8), _random(8)
    inputs = [x, other, scale, *([bias] if has_bias else [])]
    y, inverse, total = run_node(
        "SkipSimplifiedLayerNormalization", inputs, outputs=4, omitted=(1,), **MICROSOFT
    )
    wanted = x + other + (bias if has_bias else 0)
    factor = 1 / np.sqrt((wanted**2).mean(-1, keepdims=True) + 1e-12)
    _close(total, wanted)
    _close(inverse, factor)
    _close(y, wanted * factor * scale)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_simplified_normalization_has_no_mean(run_node, domain):
    x, scale = _random(2, 3, 8), _random(8)
    y, inverse = run_node(
        "SimplifiedLayerNormalization", [x, scale], outputs=2, domain=domain, version=1
    )
    factor = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    _close(inverse, factor)
    _close(y, x * factor * scale)


@pytest.mark.parametrize("has", [(True, True), (True, False), (False, True), (False, False)])
def test_embeddings_are_added_and_normalized(run_node, has):
    ids, segments = np.array([[3, 0, 5], [1, 1, 2]], np.int32), np.array([[0, 0, 1]] * 2, np.int32)
    words, places, kinds = _random(6, 8), _random(4, 8), _random(2, 8)
    scale, beta, mask = _random(8), _random(8) + 1, np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    order = np.array([[2, 3, 0]], np.int32)
    inputs = [ids, segments, words, places, kinds, scale, beta]
    if not has[0]:
        inputs[1] = inputs[4] = None
    inputs += [mask, order] if has[1] else []
    y, lengths, total = run_node(
        "EmbedLayerNormalization", inputs, outputs=3, epsilon=0.01, **MICROSOFT
    )
    wanted = words[ids] + places[order if has[1] else [0, 1, 2]]
    wanted = wanted + (kinds[segments] if has[0] else 0)
    _close(total, wanted)
    _close(y, _standard(wanted, 0.01) * scale + beta)
    np.testing.assert_array_equal(lengths, [2, 3] if has[1] else [0, 0])
    assert lengths.dtype == np.int32


def test_operators_that_torch_writes_before_onnx_has_them(run_node):
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    (made,) = run_node("Trilu", [x, np.int64(1)], **MICROSOFT)
    np.testing.assert_array_equal(made, np.triu(x, 1))
    columns, rows = np.meshgrid([-1.0, 1.0], [-1.0, 0.0])
    grid = np.stack([columns, rows], -1)[None].astype(np.float32)
    (made,) = run_node(
        "GridSample", [x[None, None], grid], align_corners=1, mode=b"bilinear", **MICROSOFT
    )
    np.testing.assert_array_equal(made[0, 0], x[:2, ::2])


_X, _ROW = np.ones((2, 3, 4), np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "error", "words"),
    [
        ("FusedMatMul", [_X, _X], {}, ShapeError, "matmul of shapes"),
        ("FusedGemm", [_X[0], _X[0].T], {"activation": b"Sine"}, LoweringError, "'Sine'"),
        ("FusedConv", [_X, _X, None, _ROW], {}, ShapeError, "cannot be broadcast"),
        ("FusedConv", [_X, _X], {"activation": b"Clip"}, LoweringError, "'Clip'"),
        ("BiasGelu", [_ROW, _X], {}, ShapeError, "cannot be broadcast"),
        ("QuickGelu", [np.ones(2, np.int32)], {}, DTypeError, "not int32"),
        ("SkipLayerNormalization", [_X, _ROW[:3], _ROW], {}, ShapeError, "cannot be broadcast"),
        ("SkipLayerNormalization", [_X, _X], {}, LoweringError, "input 2 is missing"),
        ("EmbedLayerNormalization", [_ROW] * 7, {}, ShapeError, "2 axes"),
        ("EmbedLayerNormalization", [_X[0]] * 2 + [_X] * 5, {}, ShapeError, "not a matrix"),
        ("Nothing", [_X], {}, LoweringError, r"\(com\.microsoft\.Nothing, opset 1\)"),
    ],
)
def test_bad_input_is_named(run_node, operator, inputs, given, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given, **MICROSOFT)


def test_an_unknown_operator_is_refused_with_its_domain(run_node):
    with pytest.raises(EngineError, match=r"\(com\.acme\.Gelu, opset 3\): there is no such"):
        run_node("Gelu", [_X], domain="com.acme", version=3)
