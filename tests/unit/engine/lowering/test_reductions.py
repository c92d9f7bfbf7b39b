"""Reductions beyond ONNX's own cases: older opsets, exact integers, nothing, infinities."""

import ml_dtypes
import numpy as np
import pytest

from walle_stream.errors import DTypeError, EngineError, ShapeError

_ONE_AXIS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **given: np.sum(np.abs(x), **given),
    "ReduceL2": lambda x, **given: np.sqrt(np.sum(x * x, **given)),
    "ReduceLogSum": lambda x, **given: np.log(np.sum(x, **given)),
    "ReduceLogSumExp": lambda x, **given: np.log(np.sum(np.exp(x), **given)),
    "ReduceSumSquare": lambda x, **given: np.sum(x * x, **given),
}


def _random(*shape):
    return np.random.default_rng(7).uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("operator", _ONE_AXIS)
@pytest.mark.parametrize("version", [1, 11, 13, 18, 28])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_are_an_attribute_first_and_an_input_later(run_node, operator, version, keepdims):
    x, is_input = _random(2, 3, 4), version >= (13 if operator == "ReduceSum" else 18)
    inputs = [x, np.array([-1, 0])] if is_input else [x]
    given = {} if is_input else {"axes": (2, 0)}
    (made,) = run_node(operator, inputs, version=version, keepdims=keepdims, **given)
    wanted = _ONE_AXIS[operator](x, axis=(0, 2), keepdims=bool(keepdims))
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("operator", _ONE_AXIS)
def test_no_axes_are_all_or_none(run_node, operator):
    x, none = _random(2, 3), np.zeros(0, np.int64)
    (made,) = run_node(operator, [x, none], keepdims=0)
    np.testing.assert_allclose(made, _ONE_AXIS[operator](x), rtol=1e-6)
    (made,) = run_node(operator, [x, none], noop_with_empty_axes=1, keepdims=0)
    np.testing.assert_allclose(made, _ONE_AXIS[operator](x[..., None], axis=-1), rtol=1e-6)


def test_a_scalar_is_reduced_to_itself(run_node):
    (made,) = run_node("ReduceLogSumExp", [np.float32(-3)])
    assert made.shape == ()
    assert made == -3


@pytest.mark.parametrize(
    ("operator", "dtype", "wanted"),
    [
        ("ReduceSum", np.float32, 0), ("ReduceProd", np.int32, 1), ("ReduceL2", np.float64, 0),
        ("ReduceMax", np.float32, -np.inf), ("ReduceMin", np.int8, 127),
        ("ReduceMax", np.bool_, False), ("ReduceLogSum", np.float32, -np.inf),
        ("ReduceLogSumExp", np.float16, -np.inf), ("ReduceMean", np.float32, np.nan),
    ],
)  # fmt: skip
def test_of_nothing(run_node, operator, dtype, wanted):
    (made,) = run_node(operator, [np.zeros((2, 0, 3), dtype), np.array([1])], keepdims=0)
    np.testing.assert_array_equal(made, np.full((2, 3), wanted, dtype))


def test_whole_numbers_stay_exact(run_node):
    great = 2**60
    x = np.array([great, 1, great], np.int64)
    assert run_node("ReduceSum", [x])[0] == 2 * great + 1
    assert run_node("ReduceMean", [np.full(4, 2**31 - 1, np.int32)])[0] == 2**31 - 1
    assert run_node("ReduceMean", [np.array([-3, 0], np.int32)])[0] == -1
    assert run_node("ReduceL2", [np.full(4, 2**30, np.int32)])[0] == -(2**31)  # as it wraps
    assert run_node("ReduceL2", [np.array([60000, 80000], np.int32)])[0] == 100000
    assert run_node("ReduceMax", [np.array([great, great + 1])])[0] == great + 1


def test_narrow_floats_do_not_overflow_between(run_node):
    x = np.full(2, 300, np.float16)
    assert run_node("ReduceL2", [x])[0] == np.float16(np.sqrt(180000))
    assert run_node("ReduceMean", [np.full(4, 60000, np.float16)])[0] == np.float16(60000)
    made = run_node("ReduceMean", [np.full(4096, 1 / 3, ml_dtypes.bfloat16)])[0]
    assert made == ml_dtypes.bfloat16(1 / 3)


def test_logarithms_of_sums_of_powers_keep_infinities(run_node):
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [1000, 1000], [np.nan, 1]], np.float32)
    (made,) = run_node("ReduceLogSumExp", [x, np.array([1])], keepdims=0)
    wanted = np.array([-np.inf, np.inf, 1000 + np.log(2), np.nan], np.float32)
    np.testing.assert_allclose(made, wanted)


@pytest.mark.parametrize(
    ("operator", "first", "last"), [("ArgMax", [1, 0], [2, 0]), ("ArgMin", [0, 1], [0, 2])]
)
def test_the_first_or_the_last_of_equals(run_node, operator, first, last):
    x = np.array([[1, 2, 2], [2, 1, 1]], np.int32)
    for select_last_index, wanted in enumerate((first, last)):
        given = {"axis": 1, "keepdims": 0, "select_last_index": select_last_index}
        np.testing.assert_array_equal(run_node(operator, [x], **given)[0], wanted)


def test_places_may_keep_their_axis(run_node):
    np.testing.assert_array_equal(run_node("ArgMax", [np.eye(2)])[0], [[0, 1]])


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
def test_running_totals(run_node, operator, exclusive, reverse):
    x = np.random.default_rng(3).integers(-3, 4, (2, 7, 3))
    (made,) = run_node(operator, [x, np.array(-2)], exclusive=exclusive, reverse=reverse)
    wanted = np.zeros_like(x)
    for place in range(7):
        kept = slice(place + exclusive, 7) if reverse else slice(0, place + 1 - exclusive)
        function = np.sum if operator == "CumSum" else np.prod
        wanted[:, place] = function(x[:, kept], axis=1)
    np.testing.assert_array_equal(made, wanted)


def test_running_sums_are_exact_and_keep_signs_and_infinities(run_node):
    x = np.array([2**62, 1, 2**61 + 1])
    np.testing.assert_array_equal(run_node("CumSum", [x, np.array([0])])[0], np.cumsum(x))
    x = np.array([-0.0, -0.0, 1, np.inf, 5], np.float32)
    (made,) = run_node("CumSum", [x, np.array(0)])
    np.testing.assert_array_equal(made, np.cumsum(x))
    assert np.signbit(made[:2]).all()
    half = np.full(4096, 1 / 3, np.float16)
    (made,) = run_node("CumSum", [half, np.array(0)])
    assert made[-1] == np.float16(4096 * float(half[0]))


def test_hardmax_before_opset_13_is_of_all_axes_from_one_on(run_node):
    x = np.array([[[1, 5], [5, 2]]], np.float32)
    np.testing.assert_array_equal(
        run_node("Hardmax", [x], version=11)[0], [[[0, 1], [0, 0]]]
    )  # fmt: skip
    np.testing.assert_array_equal(run_node("Hardmax", [x], axis=1)[0], [[[0, 1], [1, 0]]])
    assert run_node("Hardmax", [np.zeros((2, 0), np.float32)])[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "error", "words"),
    [
        ("ReduceSum", [np.ones(3), np.array([1])], {}, ShapeError, "no axis 1 of 1"),
        ("ReduceSum", [np.ones(3), np.array([0, -1])], {}, ShapeError, "name an axis twice"),
        ("ReduceSum", [np.ones(3), np.array([0.5])], {}, DTypeError, "whole numbers"),
        ("ReduceL1", [np.ones(3)], {"axes": 1, "version": 1}, EngineError, "'axes' must be"),
        ("ReduceMean", [np.ones(3, np.bool_)], {}, DTypeError, "not bool"),
        ("ArgMax", [np.ones((2, 0))], {"axis": 1}, ShapeError, "size 0"),
        ("CumSum", [np.ones(3), np.array([0, 0])], {}, ShapeError, "one whole number"),
        ("CumSum", [np.ones(3)], {}, ShapeError, "one whole number"),
        ("Hardmax", [np.ones(3)], {"axis": 2**40}, ShapeError, "no axis"),
    ],
)
def test_bad_input_is_named(run_node, operator, inputs, given, error, words):
    with pytest.raises(error, match=words):
        run_node(operator, inputs, **given)
