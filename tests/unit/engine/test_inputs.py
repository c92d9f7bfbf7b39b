"""A caller's inputs are checked against the model's declaration."""

import ml_dtypes
import numpy as np
import pytest

from walle_stream.engine.graph import Graph, OptionalType, SequenceType, TensorType
from walle_stream.engine.inputs import TEXTS_MAX, checked_inputs
from walle_stream.errors import DTypeError, EngineError, ShapeError

FLOAT = np.dtype(np.float32)
TEXT = np.dtype(object)


def checked(declared, given, **constants):
    return checked_inputs(Graph("test", declared, {}, (), constants), given)


def one(kind, value):
    return checked({"x": kind}, {"x": value})["x"]


def refused(error, kind, value):
    with pytest.raises(error) as caught:
        one(kind, value)
    assert "input 'x'" in str(caught.value)
    return str(caught.value)


def test_an_unknown_name_is_refused_with_the_names_that_there_are():
    with pytest.raises(EngineError, match=r"there is no input 'y': the model has 'x'"):
        checked({"x": None}, {"x": 1, "y": 2})


def test_a_missing_input_is_refused():
    with pytest.raises(EngineError, match=r"input 'b' is missing: the model has 'a', 'b'"):
        checked({"a": None, "b": None}, {"a": 1})


def test_of_many_names_some_are_shown():
    with pytest.raises(EngineError, match=r"'i19' and 5 more"):
        checked({f"i{number}": None for number in range(25)}, {})


def test_an_input_with_a_constant_may_be_left_out_or_given():
    declared = {"x": TensorType(FLOAT, (2,))}
    assert checked(declared, {}, x=np.zeros(2, FLOAT)) == {}
    assert checked(declared, {"x": np.ones(2, FLOAT)}, x=np.zeros(2, FLOAT))["x"][0] == 1


def test_an_optional_input_may_be_left_out_or_none():
    kind = OptionalType(TensorType(FLOAT, None))
    assert checked({"x": kind}, {}) == {"x": None}
    assert one(kind, None) is None
    assert one(kind, np.ones(2, FLOAT)).shape == (2,)


def test_another_dtype_is_refused():
    text = refused(DTypeError, TensorType(FLOAT, None), np.zeros(2))
    assert "its dtype is float64, not float32" in text


@pytest.mark.parametrize("value", [np.array([1.5]), np.float64(1.5)])
def test_what_has_a_dtype_keeps_it(value):
    refused(DTypeError, TensorType(FLOAT, None), value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1),
        ("float16", [1.5]),
        ("int8", [1, -2]),
        ("uint8", 255),
        ("int64", []),
        ("bool", True),
        ("bfloat16", 2.0),
        ("int4", [-8]),
    ],
)
def test_plain_numbers_take_the_declared_dtype(dtype, value):
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    assert one(TensorType(wanted, None), value).dtype == wanted


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", 300), ("uint8", -1), ("int32", 1.5), ("bool", 1), ("int8", True), ("float32", 1j)],
)
def test_plain_numbers_that_do_not_fit_are_refused(dtype, value):
    refused(DTypeError, TensorType(np.dtype(dtype), None), value)


def test_another_order_of_bytes_is_turned():
    found = one(TensorType(FLOAT, (2,)), np.array([1, 2], ">f4"))
    assert found.dtype == FLOAT
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, [1, 2])


@pytest.mark.parametrize("shape", [(2,), (2, 3, 1), (3, 3), ()])
def test_another_shape_is_refused(shape):
    refused(ShapeError, TensorType(FLOAT, (2, 3)), np.zeros(shape, FLOAT))


def test_a_size_that_is_not_declared_may_be_any():
    assert one(TensorType(FLOAT, (None, 3)), np.zeros((0, 3), FLOAT)).shape == (0, 3)


def test_a_name_of_a_size_is_one_number_in_a_run():
    declared = {"a": TensorType(FLOAT, ("N", 2)), "b": TensorType(FLOAT, ("N",))}
    checked(declared, {"a": np.zeros((4, 2), FLOAT), "b": np.zeros(4, FLOAT)})
    with pytest.raises(ShapeError, match=r"input 'b': .* not \[N\]: N is 4 in 'a'"):
        checked(declared, {"a": np.zeros((4, 2), FLOAT), "b": np.zeros(5, FLOAT)})


def test_a_name_of_a_size_is_one_number_in_one_input():
    refused(ShapeError, TensorType(FLOAT, ("N", "N")), np.zeros((2, 3), FLOAT))


def test_tensors_of_a_sequence_may_have_each_their_size():
    kind = SequenceType(TensorType(FLOAT, ("N",)))
    assert len(one(kind, [np.zeros(1, FLOAT), np.zeros(2, FLOAT)])) == 2


@pytest.mark.parametrize("value", [np.zeros(2, FLOAT), None, 3, {"a": 1}])
def test_a_sequence_is_a_list(value):
    refused(EngineError, SequenceType(TensorType(FLOAT, None)), value)


@pytest.mark.parametrize("value", [None, [[1], [1, 2]], object(), 2**80, {1}, "text"])
def test_what_is_no_tensor_is_refused(value):
    refused(EngineError, TensorType(FLOAT, None), value)


def test_text_is_taken_from_strings_and_bytes():
    for value in (["a", "é"], np.array(["a", "é"]), np.array([b"a", "é".encode()])):
        found = one(TensorType(TEXT, (2,)), value)
        assert found.dtype == TEXT
        assert found.tolist() == ["a", "é"]


def test_bytes_that_are_no_text_are_refused():
    assert "not UTF-8" in refused(EngineError, TensorType(TEXT, None), np.array([b"\xff"]))


def test_objects_that_are_no_text_are_refused():
    refused(DTypeError, TensorType(TEXT, None), np.array(["a", 1], object))
    refused(DTypeError, None, np.array([None], object))


def test_a_dtype_that_no_tensor_has_is_refused():
    refused(DTypeError, None, np.array(["2020-01-01"], "datetime64[D]"))
    refused(DTypeError, None, np.zeros(1, [("a", "f4")]))


def test_sizes_that_nobody_can_hold_are_refused():
    assert "elements" in refused(ShapeError, None, np.broadcast_to(np.float32(0), (1 << 40,)))
    many = np.broadcast_to(np.array("a", object), (TEXTS_MAX + 1,))
    assert "texts" in refused(ShapeError, TensorType(TEXT, None), many)


def test_values_of_no_declared_type_are_taken_as_they_are():
    assert one(None, None) is None
    assert one(None, [np.zeros(1), np.zeros(2)])[1].shape == (2,)
    assert one(None, [1, 2]).dtype == np.int64


@pytest.mark.parametrize(
    ("value", "dtype"), [([-1], "uint64"), ([2**63], "int64"), ([-1], "uint8")]
)
def test_a_plain_number_does_not_change_its_sign(value, dtype):
    refused(DTypeError, TensorType(np.dtype(dtype), None), value)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int4", "uint4"])
def test_a_plain_number_takes_the_declared_dtype(dtype):
    declared = np.dtype(getattr(ml_dtypes, dtype, dtype))
    assert one(TensorType(declared, None), [0, 7]).astype(np.int64).tolist() == [0, 7]
