"""Mod, BitShift, IsInf, Reciprocal."""

import math

import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, LoweringError, ShapeError


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_mod_has_the_sign_of_the_divisor(run_node, dtype):
    x = np.array([5, 6, 7] if dtype == "uint32" else [-5, 6, -7], dtype)
    y = np.array([3, 4, 5] if dtype == "uint32" else [3, -4, -5], dtype)
    (made,) = run_node("Mod", [x, y], version=10)
    assert made.tolist() == [int(a) % int(b) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16])
def test_fmod_has_the_sign_of_the_dividend(run_node, dtype):
    x, y = np.array([-5.5, 5.5, -7], dtype), np.array([3, -3, 2.5], dtype)
    (made,) = run_node("Mod", [x, y], fmod=1)
    assert made.astype(float).tolist() == [
        math.fmod(a, b) for a, b in zip(x.astype(float), y.astype(float), strict=True)
    ]


def test_mod_of_floats_is_by_floor_since_opset_28(run_node):
    x = np.array([-5.5, 5.5, 3, -3, 0.0, np.inf, 1], np.float32)
    y = np.array([3, -3, np.inf, np.inf, -2, 1, 0], np.float32)
    (made,) = run_node("Mod", [x, y])
    np.testing.assert_array_equal(made, [0.5, -0.5, 3, np.inf, -0.0, np.nan, np.nan])


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int8", "int64"])
def test_bits_are_shifted_as_the_table_says(run_node, dtype):
    bits = 8 * np.dtype(dtype).itemsize
    least = np.iinfo(dtype).min
    x = np.array([1, 3, least, 3, least], dtype)
    y = np.array([1, bits - 1, 1, bits, bits], dtype)
    wrap = 1 << bits
    left = [(int(a) << int(b)) % wrap if b < bits else 0 for a, b in zip(x, y, strict=True)]
    (made,) = run_node("BitShift", [x, y], direction=b"LEFT")
    assert [int(each) % wrap for each in made] == left
    (made,) = run_node("BitShift", [x, y], direction=b"RIGHT")
    assert made.tolist() == [int(a) >> int(b) for a, b in zip(x, y, strict=True)]


def test_a_negative_shift_is_one_of_all_bits(run_node):
    x, y = np.array([5, -5], np.int32), np.array([-1, -1], np.int32)
    assert run_node("BitShift", [x, y], direction=b"LEFT")[0].tolist() == [0, 0]
    assert run_node("BitShift", [x, y], direction=b"RIGHT")[0].tolist() == [0, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.float8_e5m2])
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [True, True, False, False]),
        ({"detect_negative": 0}, [True, False, False, False]),
        ({"detect_positive": 0}, [False, True, False, False]),
        ({"detect_positive": 0, "detect_negative": 0}, [False] * 4),
    ],
)
def test_infinities_are_found(run_node, dtype, attributes, expected):
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32).astype(dtype)
    assert run_node("IsInf", [x], **attributes)[0].tolist() == expected


def test_a_dtype_without_infinity_has_none(run_node):
    x = np.array([448, np.nan], np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert run_node("IsInf", [x])[0].tolist() == [False, False]


def test_reciprocal_of_nothing_is_infinite(run_node):
    (made,) = run_node("Reciprocal", [np.array([0.0, -4.0], np.float32)], version=1)
    assert made.tolist() == [np.inf, -0.25]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "error"),
    [
        ("Mod", [np.ones(2), np.ones(2, int)], {}, DTypeError),
        ("Mod", [np.ones(2), np.ones(3)], {}, ShapeError),
        ("Mod", [np.ones(2), np.ones(2)], {"fmod": 2}, LoweringError),
        ("Mod", [np.ones(2, bool), np.ones(2, bool)], {}, DTypeError),
        ("BitShift", [np.ones(2), np.ones(2)], {"direction": b"LEFT"}, DTypeError),
        ("BitShift", [np.ones(2, int), np.ones(2, int)], {"direction": b"UP"}, LoweringError),
        ("BitShift", [np.ones(2, int), np.ones(2, int)], {}, LoweringError),
        ("IsInf", [np.ones(2, int)], {}, DTypeError),
        ("Reciprocal", [np.ones(2, int)], {}, DTypeError),
    ],
)
def test_wrong_calls_are_refused(run_node, operator, inputs, attributes, error):
    with pytest.raises(error):
        run_node(operator, inputs, **attributes)
