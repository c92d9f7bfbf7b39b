"""Dtypes that the rules refuse, since no backend computes with them."""

import numpy as np
import pytest

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import infer
from walle_stream.errors import DTypeError, ShapeError

ROWS = Tensor((2,), np.dtype(np.int64))


def refused(operator, given, count=2, **parameters):
    inputs = [Tensor((2, 3), np.dtype(given))] * count
    with pytest.raises(DTypeError) as caught:
        infer(operator, inputs, parameters)
    return str(caught.value)


@pytest.mark.parametrize("operator", [Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT])
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64"])
def test_bits_of_integers_alone_are_shifted(operator, dtype):
    assert refused(operator, dtype) == f"{operator} takes integers, not {dtype}"


@pytest.mark.parametrize("operator", [Operator.SUB, Operator.MOD, Operator.FMOD])
def test_what_makes_numbers_of_bool_takes_none(operator):
    assert refused(operator, "bool") == f"{operator} takes numbers, not bool"


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("operator", [Operator.DIV, Operator.POW, Operator.MOD, Operator.FMOD])
def test_integers_of_few_bits_are_not_divided(operator, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the extra `onnx` is missing")
    assert name in refused(operator, getattr(ml_dtypes, name))


@pytest.mark.parametrize("operator", [Operator.ADD, Operator.MUL, Operator.LESS, Operator.MATMUL])
def test_text_is_not_computed_with(operator):
    assert refused(operator, object).endswith("takes numbers, not text")


@pytest.mark.parametrize(("given", "made"), [("int64", object), (object, "int64")])
def test_text_has_no_bits(given, made):
    assert "text has no bits" in refused(Operator.BITCAST, given, 1, dtype=np.dtype(made))


@pytest.mark.parametrize("dtype", ["complex64", "int32", "bool", object])
def test_random_numbers_are_floating(dtype):
    refused(Operator.RANDOM, dtype, 0, shape=(2,), dtype=np.dtype(dtype))


def test_rows_are_put_into_rows_of_their_dtype():
    data, updates = Tensor((3, 2), np.dtype(np.float32)), Tensor((2, 2), np.dtype(np.float64))
    with pytest.raises(DTypeError, match="put into"):
        infer(Operator.PUT, [data, ROWS, updates], {})
    with pytest.raises(ShapeError, match="put into"):
        infer(Operator.PUT, [data, Tensor((), ROWS.dtype), updates], {})


@pytest.mark.parametrize(("dtype", "reduction"), [(object, "add"), ("complex64", "maximum")])
def test_rows_are_combined_as_their_dtype_is(dtype, reduction):
    data, updates = (Tensor((count, 2), np.dtype(dtype)) for count in (3, 2))
    assert infer(Operator.PUT, [data, ROWS, updates], {})[0] == (3, 2)
    with pytest.raises(DTypeError):
        infer(Operator.PUT, [data, ROWS, updates], {"reduction": reduction})


def test_the_host_is_given_text_alone_but_for_images():
    given = {"name": "match", "pattern": "", "shape": (2,), "dtype": np.dtype(np.bool_)}
    with pytest.raises(DTypeError, match="match of text takes no int64"):
        infer(Operator.TEXT, [ROWS], given)
    image = Tensor((9,), np.dtype(np.uint8))
    assert infer(Operator.TEXT, [image], {**given, "name": "decode_image"})[0] == (2,)
