"""Quantisation, against its formula with one scale an element."""

import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

RNG = np.random.default_rng(5)
X = (RNG.standard_normal((3, 5)) * 20).astype(np.float32)
INT4, UINT4, INT2 = ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2
LIMITS = {
    np.uint8: (0, 255), np.int8: (-128, 127), np.uint16: (0, 65535), np.int16: (-32768, 32767),
    UINT4: (0, 15), INT4: (-8, 7), INT2: (-2, 1), ml_dtypes.uint2: (0, 3),
}  # fmt: skip


def expected(x, scale, zero, dtype):
    low, high = LIMITS[dtype]
    return np.clip(np.rint(x / scale) + zero, low, high).astype(int)


@pytest.mark.parametrize("dtype", LIMITS)
def test_a_scale_a_tensor(run_node, dtype):
    scale, zero = np.float32(0.7), np.array(1, dtype)
    (made,) = run_node("QuantizeLinear", [X, scale, zero])
    assert made.dtype == dtype
    np.testing.assert_array_equal(made.astype(int), expected(X, scale, 1, dtype))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_an_axis(run_node, axis):
    count = X.shape[axis]
    scale, zero = np.linspace(0.5, 2, count, dtype="f4"), np.arange(count).astype(np.uint8)
    shape = (count, 1) if axis == 0 else (1, count)
    (made,) = run_node("QuantizeLinear", [X, scale, zero], axis=axis, version=13)
    want = expected(X, scale.reshape(shape), zero.reshape(shape).astype(int), np.uint8)
    np.testing.assert_array_equal(made, want)
    (back,) = run_node("DequantizeLinear", [made, scale, zero], axis=axis, version=13)
    want = (made.astype(np.float32) - zero.reshape(shape)) * scale.reshape(shape)
    np.testing.assert_array_equal(back, want)


@pytest.mark.parametrize(("axis", "block"), [(1, 2), (1, 5), (1, 100), (0, 2), (0, 1), (1, 3)])
def test_a_scale_a_block(run_node, axis, block):
    count = -(-X.shape[axis] // block)
    shape = (count, 5) if axis == 0 else (3, count)
    scale = RNG.uniform(0.5, 2, shape).astype(np.float32)
    zero = RNG.integers(-5, 5, shape).astype(np.int8)
    spread = [
        np.take(np.repeat(each, block, axis), np.arange(X.shape[axis]), axis)
        for each in (scale, zero.astype(int))
    ]
    (made,) = run_node("QuantizeLinear", [X, scale, zero], axis=axis, block_size=block)
    np.testing.assert_array_equal(made, expected(X, *spread, np.int8))
    (back,) = run_node("DequantizeLinear", [made, scale, zero], axis=axis, block_size=block)
    np.testing.assert_array_equal(back, (made.astype("f4") - spread[1].astype("f4")) * spread[0])


def test_uint8_is_the_default(run_node):
    assert run_node("QuantizeLinear", [X, np.float32(1)], version=10)[0].dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_zero_point_that_float16_has_not_is_added_exactly(run_node, dtype):
    inputs = [np.array([1, 2, -1], dtype), np.array(1, dtype), np.array(32767, np.uint16)]
    assert run_node("QuantizeLinear", inputs)[0].tolist() == [32768, 32769, 32766]


def test_whole_numbers_are_quantised_by_a_float(run_node):
    inputs = [np.array([5, -7], np.int32), np.float32(2), np.int8(0)]
    assert run_node("QuantizeLinear", inputs, version=10)[0].tolist() == [2, -4]


@pytest.mark.parametrize(("saturate", "last"), [(1, 448.0), (0, np.nan)])
def test_float8_saturates_or_not(run_node, saturate, last):
    inputs = [np.array([1.1, 1e9], np.float32), np.float32(1)]
    (made,) = run_node("QuantizeLinear", inputs, output_dtype=17, saturate=saturate)
    np.testing.assert_array_equal(made.astype(np.float32), [1.125, last])


def test_precision_says_how_it_is_divided(run_node):
    x, scale = np.array([2049.0], np.float32), np.float32(1)
    assert run_node("QuantizeLinear", [x, scale], output_dtype=4)[0].tolist() == [2049]
    (made,) = run_node("QuantizeLinear", [x, scale], output_dtype=4, precision=10)
    assert made.tolist() == [2048]


def test_a_power_of_two_is_a_scale(run_node):
    scale = np.array(4, np.float32).astype(ml_dtypes.float8_e8m0fnu)
    (made,) = run_node("QuantizeLinear", [np.float32([8, 9]), scale], output_dtype=3)
    assert made.tolist() == [2, 2]
    (back,) = run_node("DequantizeLinear", [made, scale], output_dtype=16)
    assert back.dtype == ml_dtypes.bfloat16
    assert back.astype(int).tolist() == [8, 8]
    with pytest.raises(DTypeError, match="output_dtype"):
        run_node("DequantizeLinear", [made, scale])


def test_int32_keeps_its_digits_without_a_zero_point(run_node):
    x = np.array([2**24 + 1], np.int32)
    (made,) = run_node("DequantizeLinear", [x, np.float32(1)], version=10)
    assert made.tolist() == [2**24]


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_nothing_is_quantised_to_nothing(run_node, shape):
    (made,) = run_node("QuantizeLinear", [np.ones(shape, np.float32), np.float32(1)])
    assert made.shape == shape
    assert run_node("DequantizeLinear", [made, np.float32(1)])[0].shape == shape


@pytest.mark.parametrize(
    ("inputs", "attributes", "error"),
    [
        ([X, np.ones(3, "f4")], {"axis": 1}, ShapeError),
        ([X, np.ones(3, "f4")], {"axis": 2}, ShapeError),
        ([X, np.ones(3, "f4"), np.ones(2, np.uint8)], {"axis": 0}, ShapeError),
        ([X, np.ones((3, 2), "f4")], {"axis": 1, "block_size": 2}, ShapeError),
        ([X, np.ones((3, 5), "f4")], {"block_size": -1}, ShapeError),
        ([X, np.float32(1), np.uint8(1)], {"output_dtype": 3}, DTypeError),
        ([X, np.float32(1)], {"output_dtype": 1}, DTypeError),
        ([X, np.float32(1)], {"output_dtype": 7}, DTypeError),
        ([X, np.float32(1)], {"precision": 6}, DTypeError),
        ([X, np.float32(1)], {"precision": 1.5}, LoweringError),
        ([X], {}, LoweringError),
    ],
)
def test_wrong_calls_are_refused(run_node, inputs, attributes, error):
    with pytest.raises(error):
        run_node("QuantizeLinear", inputs, **attributes)


def test_a_zero_point_of_another_dtype_is_refused(run_node):
    with pytest.raises(DTypeError):
        run_node("DequantizeLinear", [np.ones(2, np.uint8), np.float32(1), np.int8(1)])


@pytest.mark.parametrize("x", [np.zeros((2, 3), "f4"), np.zeros((0,), "f4"), -np.ones(3, "f4")])
def test_dynamic_scales_are_never_nothing(run_node, x):
    made, scale, zero = run_node("DynamicQuantizeLinear", [x], outputs=3, version=11)
    assert scale > 0
    back = (made.astype(np.float32) - zero) * scale
    np.testing.assert_allclose(back, x, atol=1e-6)


def test_dynamic_quantisation_refuses_integers(run_node):
    with pytest.raises(DTypeError):
        run_node("DynamicQuantizeLinear", [np.ones(2, int)], outputs=3)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)),
                 ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (5, 3, 1)), ((2, 0), (0, 3)), ((0, 2), (2, 3))]
)  # fmt: skip
def test_integers_are_multiplied_as_numpy_does(run_node, a, b):
    x = RNG.integers(0, 256, a).astype(np.uint8)
    y = RNG.integers(-128, 128, b).astype(np.int8)
    (made,) = run_node("MatMulInteger", [x, y, np.uint8(7), np.int8(-3)])
    assert made.dtype == np.int32
    np.testing.assert_array_equal(made, (x.astype(int) - 7) @ (y.astype(int) + 3))


@pytest.mark.parametrize("count", [255, 256, 40000])
def test_sums_of_many_products_are_exact(run_node, count):
    x, y = np.full((1, count), 255, np.uint8), np.full((count, 1), 255, np.uint8)
    total = 255 * 255 * count
    (made,) = run_node("MatMulInteger", [x, y])
    assert made.item() == (total + 2**31) % 2**32 - 2**31


def test_zero_points_a_row_and_a_column(run_node):
    x, y = RNG.integers(0, 256, (2, 2, 3, 4)).astype(np.uint8).view(), np.ones((4, 5), np.uint8)
    rows, columns = np.arange(3, dtype=np.uint8), np.arange(5, dtype=np.uint8)
    (made,) = run_node("MatMulInteger", [x, y, rows, columns])
    want = (x.astype(int) - rows.reshape(3, 1)) @ (y.astype(int) - columns)
    np.testing.assert_array_equal(made, want)


def linear_matmul(a, b, rows, columns, y_scale, zero):
    real = (a.astype(int) - 3) * rows.reshape(-1, 1) @ ((b.astype(int) - 1) * columns)
    return np.clip(np.rint(real / y_scale) + zero, 0, 255)


def test_products_are_quantised_again(run_node):
    a = RNG.integers(0, 256, (3, 4)).astype(np.uint8)
    b = RNG.integers(-128, 128, (4, 5)).astype(np.int8)
    rows, columns = RNG.uniform(0.01, 0.1, 3), RNG.uniform(0.01, 0.1, 5)
    (made,) = run_node(
        "QLinearMatMul",
        [a, rows.astype("f4"), np.full(3, 3, np.uint8), b, columns.astype("f4"),
         np.full(5, 1, np.int8), np.float32(0.31), np.uint8(101)],
    )  # fmt: skip
    want = linear_matmul(a, b, rows.astype("f4"), columns.astype("f4"), np.float32(0.31), 101)
    assert np.abs(made.astype(int) - want).max() <= 1
    assert (made == want).mean() > 0.9


def test_products_of_float8(run_node):
    e4m3 = ml_dtypes.float8_e4m3fn
    a, one, zero = np.array([[1, 2]], np.float32).astype(e4m3), np.float16(1), np.zeros((), e4m3)
    (made,) = run_node("QLinearMatMul", [a, one, zero, a.T, one, zero, one, zero])
    assert made.dtype == e4m3
    assert made.astype(float).item() == 5


@pytest.mark.parametrize(
    ("operator", "inputs", "error"),
    [
        ("MatMulInteger", [np.ones((2, 3), "i1"), np.ones((2, 3), "i1")], ShapeError),
        ("MatMulInteger", [np.ones((2, 3), "i4"), np.ones((3, 2), "i4")], DTypeError),
        ("MatMulInteger", [np.int8(1), np.int8(1)], ShapeError),
        ("MatMulInteger", [np.ones((2, 3), "i1")], LoweringError),
        ("MatMulInteger", [np.ones((2, 3), "i1"), np.ones((3, 2), "i1"), np.uint8(1)], DTypeError),
        ("MatMulInteger", [np.ones((2, 3), "i1"), np.ones((3, 2), "i1"), np.ones(7, "i1")],
         ShapeError),
        ("QLinearMatMul", [np.ones((2, 3), "i1")], EngineError),
        ("ConvInteger", [np.ones((1, 2, 3), "i1"), np.ones((1, 1, 3), "i1")], ShapeError),
        ("ConvInteger", [np.ones((1, 1, 3)), np.ones((1, 1, 3))], DTypeError),
        ("ConvInteger", [np.ones((1, 1, 3), "i1"), np.ones((1, 1, 3), "i1"), np.ones(2, "i1")],
         ShapeError),
        ("ConvInteger", [np.ones((1, 1), "i1"), np.ones((1, 1), "i1")], ShapeError),
        ("QLinearConv", [np.ones((1, 1, 3), "i1")], EngineError),
    ],
)  # fmt: skip
def test_wrong_products_are_refused(run_node, operator, inputs, error):
    with pytest.raises(error):
        run_node(operator, inputs)


def naive_convolution(x, w, pads, group):
    x = np.pad(x, ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    n, _, h, width = x.shape
    m, k, kh, kw = w.shape
    made = np.zeros((n, m, h - kh + 1, width - kw + 1), int)
    for o in range(m):
        first = o // (m // group) * k
        for i in range(made.shape[2]):
            for j in range(made.shape[3]):
                seen = x[:, first : first + k, i : i + kh, j : j + kw]
                made[:, o, i, j] = (seen * w[o]).sum(axis=(1, 2, 3))
    return made


@pytest.mark.parametrize("group", [1, 2, 4])
def test_whole_numbers_are_convolved_exactly(run_node, group):
    x = RNG.integers(0, 256, (2, 4, 5, 6)).astype(np.uint8)
    w = RNG.integers(0, 256, (4, 4 // group, 3, 2)).astype(np.uint8)
    zeros = np.array([1, 2, 3, 250], np.uint8)
    (made,) = run_node(
        "ConvInteger", [x, w, np.uint8(9), zeros], group=group, pads=(1, 1, 1, 1), version=10
    )
    centred = w.astype(int) - zeros.reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(made, naive_convolution(x.astype(int) - 9, centred, 1, group))


def test_a_convolution_is_quantised_again(run_node):
    x = RNG.integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    w = RNG.integers(-128, 128, (3, 2, 2, 2)).astype(np.int8)
    scales, bias = np.float32([0.01, 0.02, 0.03]), np.int32([100, -200, 300])
    inputs = [x, np.float32(0.1), np.uint8(7), w, scales, np.int8([0, 1, 2]), np.float32(0.5),
              np.uint8(128), bias]  # fmt: skip
    (made,) = run_node("QLinearConv", inputs, version=10)
    sums = naive_convolution(
        x.astype(int) - 7, w.astype(int) - np.arange(3).reshape(3, 1, 1, 1), 0, 1
    )
    shape = (3, 1, 1)
    real = (sums + bias.reshape(shape)) * (np.float32(0.1) * scales / np.float32(0.5)).reshape(
        shape
    )
    np.testing.assert_array_equal(made, np.clip(np.rint(real) + 128, 0, 255))
