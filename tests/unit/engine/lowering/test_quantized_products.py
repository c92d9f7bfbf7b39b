"""Products of com.microsoft with quantised matrices, against real products."""

import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError

MICROSOFT = {"domain": "com.microsoft", "version": 1}


def _random(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _bytes(dtype, *shape):
    limits = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(limits.min, limits.max, shape, dtype)


def _close(made, wanted, tolerance=1e-5):
    assert made.shape == np.shape(wanted)
    np.testing.assert_allclose(
        made.astype(np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtypes", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("is_real", [False, True])
def test_a_quantised_gemm(run_node, dtypes, flags, is_added, is_real):
    x, y = _bytes(dtypes[0], 3, 8), _bytes(dtypes[1], 8, 5)
    scale, zero = np.abs(_random(5)) * 0.01, _bytes(dtypes[1], 5)
    added = np.arange(5, dtype=np.int32) * 1000 if is_added else None
    inputs = [x.T if flags[0] else x, np.float32(0.02), dtypes[0](7)]
    inputs += [y.T if flags[1] else y, scale, zero, added]
    inputs += [] if is_real else [np.float32(0.1), dtypes[0](9)]
    (made,) = run_node("QGemm", inputs, transA=flags[0], transB=flags[1], alpha=0.5, **MICROSOFT)
    sums = (x.astype(int) - 7) @ (y.astype(int) - zero) + (added if is_added else 0)
    real = 0.5 * 0.02 * scale * sums
    if is_real:
        _close(made, real)
    else:
        limits = np.iinfo(dtypes[0])
        steps = np.clip(real / 0.1 + 9, limits.min, limits.max)
        assert made.dtype == dtypes[0]
        assert np.abs(made - steps).max() <= 0.5 + 1e-4


def _rounded(x, axes=None):
    # to the 8 bits of a range with 0, in float32 as the operator
    low, high = (np.asarray(f(x, axis=axes, keepdims=True), np.float32) for f in (np.min, np.max))
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = np.where(high == low, np.float32(1), (high - low) / np.float32(255))
    zero = np.round(np.clip(-low / scale, 0, 255))
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", [None, 5])
@pytest.mark.parametrize("is_biased", [False, True])
def test_products_of_real_and_of_quantised_numbers(run_node, dtype, width, is_biased):
    x, y = _random(2, 3, 8), _bytes(dtype, 8, 5)
    scale = np.float32(0.01) if width is None else np.abs(_random(width)) * 0.01
    zero = None if width is None else _bytes(dtype, width)
    bias = _random(5) if is_biased else None
    weights = (y.astype(np.float64) - (0 if zero is None else zero)) * scale
    added = bias if is_biased else 0
    (made,) = run_node("DynamicQuantizeMatMul", [x, y, scale, zero, bias], **MICROSOFT)
    _close(made, _rounded(x) @ weights + added)
    whole = _bytes(np.uint8, 2, 3, 8)
    inputs = [whole, y, np.float32(0.03), scale, np.uint8(7), zero, bias]
    (made,) = run_node("MatMulIntegerToFloat", inputs, **MICROSOFT)
    _close(made, 0.03 * (whole.astype(int) - 7) @ weights + added)


def _packed(numbers, bits):
    # the lowest bits of a byte come first
    parts = numbers.reshape(*numbers.shape[:-1], -1, 8 // bits)
    return (parts << np.arange(0, 8, bits)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("inner", [32, 40])
@pytest.mark.parametrize("kind", ["none", "packed", "real", "groups"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_weights_of_few_bits(run_node, bits, inner, kind, dtype):
    outer, block, random = 5, 16, np.random.default_rng(bits)
    blocks = -(-inner // block)
    numbers = random.integers(0, 1 << bits, (outer, blocks, block))
    scale = np.abs(_random(outer, blocks, dtype=dtype))
    zeros = random.integers(0, 1 << bits, (outer, -(-blocks * bits // 8) * 8 // bits))
    zero = {"none": None, "packed": _packed(zeros, bits)}.get(kind, zeros[:, :blocks].astype(dtype))
    groups = np.arange(inner) // block
    if kind == "groups":
        groups = random.permutation(groups)
    x, bias = _random(2, 3, inner, dtype=dtype), _random(outer, dtype=dtype)
    places = groups.astype(np.int32) if kind == "groups" else None
    inputs = [x, _packed(numbers, bits), scale, zero, places, bias]
    (made,) = run_node(
        "MatMulNBits", inputs, K=inner, N=outer, bits=bits, block_size=block, **MICROSOFT
    )
    whole = numbers.reshape(outer, -1)[:, :inner].astype(np.float64)
    middle = 1 << (bits - 1) if kind == "none" else zeros[:, groups]
    weights = (whole - middle) * scale[:, groups].astype(np.float64)
    assert made.dtype == dtype
    _close(made, x.astype(np.float64) @ weights.T + bias, 2**-8 if dtype == np.float16 else 1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_layer_that_rounds_what_it_multiplies(run_node, dtype, is_wide, direction):
    count, hidden = (2 if direction == "bidirectional" else 1), 4
    x, bias = _random(6, 2, 3), _random(count, 8 * hidden) * 0.1
    w, r = _bytes(dtype, count, 3, 4 * hidden), _bytes(dtype, count, hidden, 4 * hidden)
    shape = (count, 4 * hidden) if is_wide else (count,)
    scales = [np.abs(_random(*shape)) * 0.002 + 0.001] * 2
    zeros = [_bytes(dtype, *shape)] * 2
    inputs = [x, w, r, bias, None, None, None, None, scales[0], zeros[0], scales[1], zeros[1]]
    made = run_node(
        "DynamicQuantizeLSTM", inputs, hidden_size=hidden, direction=direction.encode(),
        outputs=3, **MICROSOFT,
    )  # fmt: skip
    for number in range(count):
        back = direction == "reverse" or number == 1
        weights = [
            (each[number].astype(np.float64) - zero[number]) * scale[number]
            for each, zero, scale in zip((w, r), zeros, scales, strict=True)
        ]
        half = bias[number].reshape(2, -1).sum(0)
        projected = _rounded(x) @ weights[0] + half
        state, cell = np.zeros((2, hidden), np.float32), np.zeros((2, hidden))
        for time in reversed(range(6)) if back else range(6):
            gates = projected[time] + _rounded(state) @ weights[1]
            entry, out, forget = (
                1 / (1 + np.exp(-gates[:, n * hidden : (n + 1) * hidden])) for n in range(3)
            )
            cell = forget * cell + entry * np.tanh(gates[:, 3 * hidden :])
            state = (out * np.tanh(cell)).astype(np.float32)
            # a step of rounding may differ where float32 falls on the other side of a half
            _close(made[0][time, number], state, 5e-3)
        _close(made[1][number], state, 5e-3)
        _close(made[2][number], cell, 5e-3)


_X, _B, _S = np.ones((2, 32), np.float32), np.ones((3, 2, 8), np.uint8), np.ones((3, 2), np.float32)
_NARROW = {"K": 32, "N": 3, "block_size": 16}
_LAYER = [np.ones((4, 1, 2), np.float32), np.ones((1, 2, 12), np.int8),
          np.ones((1, 3, 12), np.int8), *[None] * 5]  # fmt: skip
_ONE = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "error", "words"),
    [
        ("QGemm", [_B, _ONE, None, _B[0], _ONE], {}, ShapeError, "not a matrix"),
        ("DynamicQuantizeMatMul", [_X, _B[0], _ONE], {}, ShapeError, "a product of shapes"),
        ("MatMulIntegerToFloat", [_X, _B[0], _ONE, _ONE], {}, DTypeError, "8 bits"),
        ("MatMulNBits", [_X, _B, _S], {**_NARROW, "bits": 3}, LoweringError, "2, 4 and 8"),
        ("MatMulNBits", [_X, _B, _S], {"N": 3}, LoweringError, "'K'"),
        ("MatMulNBits", [_X, _B[:, :1], _S], _NARROW, ShapeError, "weights of shape"),
        ("MatMulNBits", [_X, _B, _S[:2]], _NARROW, ShapeError, "cannot become"),
        ("MatMulNBits", [_X, _B.astype(np.int8), _S], _NARROW, DTypeError, "uint8, not int8"),
        ("MatMulNBits", [_X, _B, _S], {**_NARROW, "weight_prepacked": 1}, LoweringError,
         "'weight_prepacked'"),
        ("DynamicQuantizeLSTM", [*_LAYER, _ONE, np.zeros(1, np.uint8), _ONE, np.zeros(1, np.int8)],
         {}, ShapeError, "with a zero point"),
        ("DynamicQuantizeLSTM",
         [*_LAYER, np.ones(5, np.float32), np.zeros(1, np.int8), _ONE, np.zeros(1, np.int8)],
         {}, ShapeError, "do not fit"),
        ("DynamicQuantizeLSTM", _LAYER, {}, LoweringError, "input 9 is missing"),
    ],
)  # fmt: skip
def test_bad_input_is_named(run_node, operator, inputs, given, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given, **MICROSOFT)
