"""Weights with gaps between their rows: the same products."""

import pickle

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.graph import Graph
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.planning.weights import lay_out_weights, with_gaps
from walle_stream.engine.program import Program, Tensor


def matrix(rows, columns, dtype=np.float32):
    return np.random.default_rng(7).random((rows, columns)).astype(dtype)


def test_rows_of_kibibytes_get_a_gap_of_a_line_of_cache():
    made = with_gaps(matrix(64, 512))
    assert made.strides == (512 * 4 + 64, 4)
    assert not made.flags.writeable
    np.testing.assert_array_equal(made, matrix(64, 512))


@pytest.mark.parametrize(
    "other",
    [
        matrix(64, 513), matrix(2, 512), matrix(64, 512).T, matrix(64, 512, np.float16),
        matrix(64, 512).reshape(2, 32, 512), np.zeros((0, 512), np.float32),
    ],
)  # fmt: skip
def test_others_stay_as_they_are(other):
    assert with_gaps(other) is other


def product(weights, is_read_twice):
    builder = Builder(compute)
    x = Tensor((64, 64), weights.dtype, name="x")
    constant = builder.constant(weights)
    outputs = [builder.matmul(x, constant)]
    if is_read_twice:
        outputs.append(builder.binary(Operator.ADD, outputs[0], constant))
    return Program([x], outputs, builder.steps)


@pytest.mark.parametrize("is_read_twice", [False, True])
def test_a_weight_is_laid_out_unless_another_reads_or_holds_it(is_read_twice):
    weights = matrix(64, 512)
    program = product(weights, is_read_twice)
    made = lay_out_weights(program, ())
    step = next(each for each in made.steps if each.operator is Operator.MATMUL)
    assert (step.inputs[1].data.strides == (2112, 4)) is not is_read_twice
    constant = next(each.inputs[1] for each in program.steps if each.operator is Operator.MATMUL)
    assert lay_out_weights(program, {id(constant.data)}) is program
    x = matrix(64, 64)
    found, wanted = (NumpyBackend().plan(each).run([x])[0] for each in (made, program))
    np.testing.assert_array_equal(found, wanted)


def test_pickles_have_weights_in_buffers_beside_them():
    plain, gapped = matrix(64, 513), with_gaps(matrix(64, 512))
    graph = Graph("g", {}, {}, (), {"plain": plain, "gapped": gapped, "part": plain[:, :100]})
    buffers = []
    data = pickle.dumps(graph, protocol=5, buffer_callback=buffers.append)
    assert [each.raw().nbytes for each in buffers] == [plain.nbytes, 64 * 2112]
    made = pickle.loads(data, buffers=buffers).constants  # noqa: S301 - made above
    assert made["gapped"].strides == gapped.strides
    assert np.shares_memory(made["gapped"], gapped)
    for name, each in graph.constants.items():
        np.testing.assert_array_equal(made[name], each)
