"""Properties of the toy backend outside the conformance suite: its rounding, its limit."""

import numpy as np
import pytest

from walle_stream.engine.operators import ATOMIC, HOST, Operator
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.errors import EngineError
from walle_stream.testing.toy.backend import KERNELS, ToyBackend
from walle_stream.testing.toy.elements import fitted, read, written

ml_dtypes = pytest.importorskip("ml_dtypes")

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
          ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
          ml_dtypes.float4_e2m1fn]  # fmt: skip


def test_a_backend_is_one_raster_and_the_atomic_operators():
    assert set(KERNELS) == ATOMIC - HOST | {Operator.RASTER}


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_rounded_to_the_nearest_with_halves_to_even(kind):
    draw = np.random.default_rng(1)
    # exact in float32, so that two roundings of ml_dtypes are one
    x = (draw.standard_normal(4000) * np.exp2(draw.integers(-30, 20, 4000))).astype(np.float32)
    x = np.concatenate([x, np.arange(-600, 600, 0.25, np.float32), [0.0, -0.0, 1e38]])
    with np.errstate(over="ignore"):
        wanted = x.astype(kind).astype(np.float64)
    assert np.array_equal(fitted(x.tolist(), np.dtype(kind)), wanted, equal_nan=True)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, ml_dtypes.int4, ml_dtypes.uint2])
def test_whole_numbers_wrap(kind):
    dtype = np.dtype(kind)
    given = [0, 1, -1, 300, -300, 1 << 62, (1 << 64) + 5]
    low_bits = np.array([each & (1 << 64) - 1 for each in given], np.uint64)
    assert fitted(given, dtype) == [int(each) for each in low_bits.astype(np.int64).astype(dtype)]


def test_an_element_that_is_spread_is_read_once():
    value = read(np.broadcast_to(np.float32(1.5), (1000, 3)))
    assert (value.shape, set(value.elements)) == ((1000, 3), {1.5})
    assert written(value).tolist() == [[1.5] * 3] * 1000


def test_a_program_that_nobody_waits_for_is_refused():
    shape = (1 << 11, 1 << 11)
    x, y = (Tensor(shape, np.dtype(np.float32)) for _ in range(2))
    with pytest.raises(EngineError, match="too many for the toy"):
        ToyBackend().plan(Program([x], [y], [Step(Operator.MATMUL, (x, x), (y,))]))
