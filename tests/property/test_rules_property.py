"""What the rules accept, backends compute; what they refuse, they refuse with an error of ours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.operators import (
    ARG_REDUCTION,
    ATOMIC,
    BINARY,
    REDUCTION,
    Operator,
)
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.rules import infer
from walle_stream.errors import DTypeError, ShapeError, SpecError
from walle_stream.testing.backend.steps import elements

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the extra `onnx` is missing")

NARROW = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2",
)  # fmt: skip
PLAIN = "?bBhHiIqQefdFDO"
DTYPES = [*map(np.dtype, PLAIN), *(np.dtype(getattr(ml_dtypes, each)) for each in NARROW)]
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
TEXT = np.dtype(object)
REFUSALS = (DTypeError, ShapeError, SpecError)
dtypes = st.sampled_from(DTYPES)
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def array(dtype, shape, seed):
    if dtype.kind == "c":
        parts = elements(np.dtype(f"f{dtype.itemsize // 2}"), (*shape, 2), seed)
        return parts.view(dtype)[..., 0]
    if dtype == TEXT:
        return np.array([str(each) for each in range(int(np.prod(shape)))], object).reshape(shape)
    return elements(dtype, shape, seed)


@st.composite
def mostly(draw, usual, others):
    """What fits most of the time, and anything else now and then."""
    return draw(others) if draw(st.integers(0, 9)) == 0 else usual


def kinds_of(operator, dtype, shape, sizes):
    """Dtypes and shapes of inputs that fit."""
    rows, columns, count = sizes
    x = (dtype, shape)
    special = {
        Operator.SELECT: [(BOOL, shape), x, x],
        Operator.MATMUL: [(dtype, (count, rows, columns)), (dtype, (count, columns, rows))],
        Operator.TAKE: [(dtype, (rows, 3, columns)), (INT64, (count,))],
        Operator.PUT: [(dtype, (3, columns)), (INT64, (count,)), (dtype, (count, columns))],
        Operator.RANDOM: [],
    }
    return special.get(operator, [x, x] if operator in BINARY else [x])


def parameters_of(operator, dtype, shape, axis):
    """All parameters worth trying."""
    combined = ("none", "add", "mul", "minimum", "maximum")
    special = {
        Operator.CAST: [{"dtype": each} for each in DTYPES],
        Operator.BITCAST: [{"dtype": each} for each in DTYPES],
        Operator.ARGSORT: [{"descending": each} for each in (False, True)],
        Operator.PUT: [{"reduction": each} for each in combined],
        Operator.RANDOM: [{"shape": shape, "dtype": dtype, "seed": each} for each in (None, 7)],
        Operator.TEXT: [{"name": "match", "pattern": "1+", "shape": shape, "dtype": BOOL}],
        **dict.fromkeys(REDUCTION, ({"axes": (axis,)}, {"axes": ()})),
        **dict.fromkeys(ARG_REDUCTION, ({"axis": axis}, {"axis": axis, "last": True})),
    }
    return special.get(operator, [{}])


@st.composite
def steps(draw):
    """An operator, dtypes and shapes of its inputs, and parameters: as they should be, or nearly."""
    operator = draw(st.sampled_from(sorted(ATOMIC)))
    dtype, shape = draw(dtypes), draw(shapes)
    sizes = draw(st.tuples(*[st.integers(0, 3)] * 3))
    axis = draw(st.integers(-1, max(0, len(shape) - 1)))
    parameters = draw(st.sampled_from(parameters_of(operator, dtype, shape, axis)))
    kinds = [
        (draw(mostly(each, dtypes)), draw(mostly(size, shapes)))
        for each, size in kinds_of(operator, dtype, shape, sizes)
    ]
    return operator, kinds, parameters


@given(drawn=steps(), seed=st.integers(0, 1 << 16))
@settings(max_examples=600)
def test_what_is_accepted_is_computed_and_what_is_refused_is_an_error_of_ours(drawn, seed):
    operator, kinds, parameters = drawn
    inputs = [array(dtype, shape, seed) for dtype, shape in kinds]
    if operator in {Operator.TAKE, Operator.PUT} and inputs[1].dtype == INT64:
        # an index beyond the rows is refused when it is seen
        inputs[1] = np.abs(inputs[1]) % 3
        if kinds[0][1][1 if operator is Operator.TAKE else 0 :][:1] != (3,):
            return
    tensors = tuple(Tensor(each.shape, each.dtype) for each in inputs)
    try:
        shape, dtype = infer(operator, tensors, parameters)
    except REFUSALS:
        return
    step = Step(operator, tensors, (Tensor(shape, dtype),), parameters, "n")
    made = compute(step, inputs)
    assert made.dtype == dtype
    assert shape is None or made.shape == shape


@pytest.mark.parametrize("operator", sorted(ATOMIC - {Operator.TEXT}))
def test_the_reference_and_numpy_compute_every_dtype_that_the_rules_accept(operator):
    accepted = 0
    for kind in DTYPES:
        kinds = kinds_of(operator, kind, (2, 3), (2, 3, 2))
        inputs = [array(each, shape, 3) for each, shape in kinds]
        if operator in {Operator.TAKE, Operator.PUT}:
            inputs[1] = np.arange(2)
        tensors = tuple(Tensor(each.shape, each.dtype) for each in inputs)
        for more in parameters_of(operator, kind, (2, 3), 1):
            try:
                output = Tensor(*infer(operator, tensors, more))
            except DTypeError:
                continue
            step = Step(operator, tensors, (output,), more, "n")
            assert compute(step, inputs).dtype == output.dtype
            (made,) = NumpyBackend().plan(Program([*tensors], [output], [step])).run(inputs)
            assert made.dtype == output.dtype
            accepted += 1
    assert accepted
