import math

import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.backends.casting import cast
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError


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


NARROW = {
    16: ml_dtypes.bfloat16, 17: ml_dtypes.float8_e4m3fn, 18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2, 20: ml_dtypes.float8_e5m2fnuz, 23: ml_dtypes.float4_e2m1fn,
    27: ml_dtypes.float6_e2m3fn, 28: ml_dtypes.float6_e3m2fn,
}  # fmt: skip
BITS = {16: 16, 23: 4, 27: 6, 28: 6}
E8M0 = 24


def codes_of(code):
    dtype = np.dtype(NARROW[code])
    codes = np.arange(1 << BITS.get(code, 8)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float64)
    kept = np.isfinite(values)
    order = np.argsort(values[kept], kind="stable")
    return values[kept][order], codes[kept][order]


def nearest(x, values, codes):
    """Round to the nearest, halves to the even code; no value is beyond the ends."""
    high = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    below, above = values[high - 1], values[high]
    is_up = (above - x < x - below) | ((above - x == x - below) & (codes[high] % 2 == 0))
    return np.where(is_up, above, below)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("code", NARROW)
def test_a_cast_to_a_narrow_float_rounds_once(run_node, code, dtype):
    values, codes = codes_of(code)
    middle = (values[1:] + values[:-1]) / 2
    middle = middle[np.abs(middle) < 6e4] if dtype == "float16" else middle
    middle = middle[:: max(1, len(middle) // 500)]
    x = np.concatenate([middle, middle * (1 + 2**-30), middle * (1 - 2**-30)]).astype(dtype)
    (made,) = run_node("Cast", [x], to=code)
    np.testing.assert_array_equal(made.astype(np.float64), nearest(x.astype(float), values, codes))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32"])
def test_a_cast_of_large_integers_to_bfloat16_rounds_once(run_node, dtype):
    one = 1 << (30 if dtype == "int32" else 60)
    half = one // 256
    x = np.array([one + half - 1, one + half, one + half + 1, one + 3 * half - 1], dtype)
    (made,) = run_node("Cast", [x], to=16)
    step = one // 128
    np.testing.assert_array_equal(
        made.astype(np.float64), np.array([one, one, one + step, one + step], np.float64)
    )


@pytest.mark.parametrize(
    ("code", "saturate", "expected"),
    [
        (17, 1, [448, -448, 448, -448]), (18, 1, [240, -240, 240, -240]),
        (19, 1, [57344, -57344, 57344, -57344]), (20, 1, [57344, -57344, 57344, -57344]),
        (17, 0, [np.nan] * 4), (18, 0, [np.nan] * 4), (20, 0, [np.nan] * 4),
        (19, 0, [np.inf, -np.inf, np.inf, -np.inf]), (23, 1, [6, -6, 6, -6]),
        (27, 1, [7.5, -7.5, 7.5, -7.5]), (28, 0, [28, -28, 28, -28]),
    ],
)  # fmt: skip
def test_what_is_beyond_a_narrow_float_is_as_the_tables_say(run_node, code, saturate, expected):
    x = np.array([np.inf, -np.inf, 1e6, -1e6], np.float32)
    (made,) = run_node("Cast", [x], to=code, saturate=saturate)
    np.testing.assert_array_equal(made.astype(np.float32), expected)


@pytest.mark.parametrize(
    ("mode", "saturate", "expected"),
    [
        (b"up", 1, [0, 127, 128, 128, 128, 129, 254, 254, 0, 255, 255]),
        (b"down", 1, [0, 127, 127, 127, 127, 128, 254, 254, 0, 255, 255]),
        (b"nearest", 1, [0, 127, 127, 128, 128, 128, 254, 254, 0, 255, 255]),
        (b"nearest", 0, [255, 127, 127, 128, 128, 128, 255, 255, 255, 255, 255]),
    ],
)
def test_float8e8m0_has_powers_of_two_alone(run_node, mode, saturate, expected):
    x = np.array([0, 1, 1.25, 1.5, 1.75, 2.5, 1e300, np.inf, 1e-300, np.nan, -1])
    (made,) = run_node("Cast", [x], to=E8M0, round_mode=mode, saturate=saturate)
    np.testing.assert_array_equal(made.view(np.uint8), expected)


def test_the_least_power_of_float8e8m0_is_a_subnormal_of_float32(run_node):
    (made,) = run_node("Cast", [np.array([2.0**-127, 2.0**-126], np.float32)], to=E8M0)
    np.testing.assert_array_equal(made.view(np.uint8), [0, 1])


@pytest.mark.parametrize(("code", "width"), [(25, 2), (26, 2), (21, 4), (22, 4), (3, 8), (2, 8)])
@pytest.mark.parametrize("dtype", ["int64", "int16", "float32"])
def test_whole_numbers_wrap(run_node, code, width, dtype):
    x = np.arange(-7, 8).astype(dtype)
    (made,) = run_node("Cast", [x], to=code)
    wrapped = x.astype(np.int64) % (1 << width)
    is_signed = code in {26, 22, 3}
    expected = np.where(wrapped >> (width - 1), wrapped - (1 << width), wrapped)
    np.testing.assert_array_equal(made.astype(np.int64), expected if is_signed else wrapped)


@pytest.mark.parametrize("source", [*NARROW, E8M0, 21, 22, 25, 26])
@pytest.mark.parametrize("target", [*NARROW, E8M0, 21, 22, 25, 26, 1, 7, 8, 9, 10])
def test_every_narrow_dtype_becomes_every_other(run_node, source, target):
    (x,) = run_node("Cast", [np.array([0.5, 1.0, 1.0, 1.0], np.float32)], to=source)
    (made,) = run_node("Cast", [x], to=target)
    wide = x.astype(np.float32)
    if target == 8:
        assert [float(each) for each in made] == wide.tolist()
    elif target in NARROW or target in {1, 10, E8M0}:
        if target == E8M0:
            wide = np.maximum(wide, 2.0**-127)
        np.testing.assert_array_equal(made.astype(np.float32), wide)


def test_text_is_parsed(run_node):
    x = np.array(["3.5", "1e-5", "+INF", "-inf", "NaN", " 7 "], object)
    (made,) = run_node("Cast", [x], to=1)
    np.testing.assert_array_equal(made, np.array([3.5, 1e-5, np.inf, -np.inf, np.nan, 7], "f4"))


def test_text_of_whole_numbers_is_exact(run_node):
    x = np.array(["9007199254740993", "-1", "100.5"], object)
    (made,) = run_node("Cast", [x], to=7)
    assert made.tolist() == [9007199254740993, -1, 100]


def test_text_becomes_bool_and_narrow(run_node):
    x = np.array(["1", "0", "true", "False"], object)
    assert run_node("Cast", [x], to=9)[0].tolist() == [True, False, True, False]
    assert run_node("Cast", [x[:2]], to=22)[0].astype(int).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.array([314.15926, 1e20, np.nan, np.inf, -np.inf]),
         ["314.15926", "100000000000000000000", "NaN", "INF", "-INF"]),
        (np.array([0.1, 2], np.float32), ["0.1", "2"]),
        (np.array([-3, 2**63 - 1]), ["-3", "9223372036854775807"]),
        (np.array([True, False]), ["1", "0"]),
    ],
)  # fmt: skip
def test_numbers_are_written_plainly(run_node, x, expected):
    assert run_node("Cast", [x], to=8)[0].tolist() == expected


def test_text_that_is_no_number_is_refused(run_node):
    with pytest.raises(EngineError, match="could not convert"):
        run_node("Cast", [np.array(["Hello"], object)], to=1)


def test_opset_1_names_the_type(run_node):
    assert run_node("Cast", [np.array([1.5])], to=b"INT32", version=1)[0].dtype == np.int32


def test_a_cast_to_bool_is_of_what_is_not_zero(run_node):
    x = np.array([0.0, -0.0, 0.25, np.nan], np.float32)
    assert run_node("Cast", [x], to=9)[0].tolist() == [False, False, True, True]


def test_cast_like_takes_the_second_type(run_node):
    x, like = np.array([1e6], np.float32), np.zeros((), ml_dtypes.float8_e4m3fn)
    assert np.isnan(run_node("CastLike", [x, like], saturate=0)[0].astype(np.float32))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
@pytest.mark.parametrize("code", [*NARROW, E8M0, 22, 8, 9])
def test_any_shape_is_cast(run_node, shape, code):
    assert run_node("Cast", [np.ones(shape)], to=code)[0].shape == shape


@pytest.mark.parametrize("dtype", ["int64", "float64", "int32", "uint64"])
@pytest.mark.parametrize("narrow", [*NARROW.values(), ml_dtypes.float8_e8m0fnu, ml_dtypes.int2])
def test_a_scalar_stays_an_array(dtype, narrow):
    made = cast(np.array(1, dtype), np.dtype(narrow))
    assert (np.asarray(made).dtype, made.shape) == (np.dtype(narrow), ())


def test_bits_are_kept(run_node):
    x = np.array([1.0, -0.0], np.float32)
    assert run_node("BitCast", [x], to=6)[0].tolist() == [0x3F800000, -(1 << 31)]
    assert run_node("BitCast", [np.array(-1, ml_dtypes.int4)], to=21)[0].astype(int) == 15


@pytest.mark.parametrize("to", [8, 11, 22, 99])
def test_bits_of_another_width_are_refused(run_node, to):
    with pytest.raises(DTypeError):
        run_node("BitCast", [np.zeros(2, np.int8)], to=to)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [({}, LoweringError), ({"to": 99}, DTypeError), ({"to": b"CAR"}, DTypeError),
     ({"to": 1.5}, LoweringError), ({"to": 24, "round_mode": b"odd"}, LoweringError)],
)  # fmt: skip
def test_a_wrong_target_is_refused(run_node, attributes, error):
    with pytest.raises(error):
        run_node("Cast", [np.zeros(2)], **attributes)
