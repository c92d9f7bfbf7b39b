"""Steps that numpy does in one call, and outputs that lie where inputs did."""

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.backends.reference import Interpreter, compute
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.moves import concat
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Program, Tensor

SPECIAL = np.resize(
    np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 5.0, 6.0, 7.0], np.float32), (64, 512)
)


def clipped(low, high, *, shows_both=False):
    builder = Builder(compute)
    x = Tensor(SPECIAL.shape, SPECIAL.dtype, name="x")
    first = builder.binary(Operator.MAXIMUM, x, low)
    last = builder.binary(Operator.MINIMUM, first, high)
    return Program([x], [first, last] if shows_both else [last], builder.steps)


def ran(program, *inputs):
    seen = []
    plan = NumpyBackend().plan(program)
    found = plan.run(list(inputs), lambda step, _: seen.append(str(step.operator)))
    for mine, theirs in zip(found, Interpreter().plan(program).run(list(inputs)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    return seen, plan


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 6.0), (6.0, 0.0), (np.nan, 6.0), (0.0, np.nan), (-np.inf, np.inf)]
)
def test_a_maximum_and_a_minimum_are_one_call(low, high):
    assert ran(clipped(low, high), SPECIAL)[0] == ["minimum"]


def test_they_are_two_where_the_first_is_wanted():
    assert ran(clipped(0.0, 6.0, shows_both=True), SPECIAL)[0] == ["maximum", "minimum"]


def test_a_loop_writes_over_what_it_read_last():
    builder = Builder(compute)
    x = Tensor((4096, 64), np.dtype(np.float32), name="x")
    weights = builder.constant(np.eye(64, dtype=np.float32))
    made = builder.matmul(x, weights)
    bias = builder.constant(np.arange(64, dtype=np.float32))
    output = builder.binary(Operator.MAXIMUM, builder.binary(Operator.ADD, made, bias), 0.0)
    program = Program([x], [output], builder.steps)
    data = np.random.default_rng(3).standard_normal(x.shape).astype(np.float32)
    plan = ran(program, data)[1]
    buffers = plan.placement.buffers
    assert buffers[plan.program.outputs[0]] is buffers[plan.program.steps[0].output]
    assert plan.placement.arena_bytes == 2 * data.nbytes


def test_a_raster_reads_a_spread_constant_as_rows_of_elements():
    builder = Builder(compute)
    x = Tensor((2, 3), np.dtype(np.float32), name="x")
    ones = builder.broadcast(builder.constant(np.float32(1)), (2, 1))
    program = Program([x], [concat(builder, [x, ones], 1)], builder.steps)
    assert ones.data.strides == (0, 0)
    ran(program, np.arange(6, dtype=np.float32).reshape(2, 3))
