"""The backend cupy over its stand-in, beside what the suite of backends asks of all."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from walle_stream.engine.backends import backend_named
from walle_stream.engine.backends.cupy import CupyBackend
from walle_stream.engine.backends.device_kernels import stored
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Region, View
from walle_stream.errors import EngineError
from walle_stream.testing.backend.steps import dtype_of, elements, run_step, step_of
from walle_stream.testing.cupy_stand_in import stand_in

FLOAT = np.dtype(np.float32)


@pytest.fixture
def device():
    return stand_in()


@pytest.fixture
def downloads(device, monkeypatch):
    """Shapes of what was copied to the host."""
    seen = []
    copy = device.xp.asnumpy
    monkeypatch.setattr(
        device.xp, "asnumpy", lambda array: (seen.append(array.shape), copy(array))[1]
    )
    return seen


def test_without_cupy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EngineError, match=r"extra gpu-cuda12 or gpu-cuda13"):
        backend_named("cupy")


@pytest.mark.parametrize("count", [0, RuntimeError("cudaErrorNoDevice")])
def test_without_a_device_it_is_one_line(monkeypatch, count):
    def get_count():
        if isinstance(count, Exception):
            raise count
        return count

    runtime = SimpleNamespace(getDeviceCount=get_count)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", SimpleNamespace(erf=None))
    with pytest.raises(EngineError, match="finds no CUDA device"):
        backend_named("cupy")


def test_nothing_leaves_the_device_but_outputs(device, downloads):
    x, y, z = (Tensor((4, 5), FLOAT) for _ in range(3))
    steps = [Step(Operator.ADD, (x, x), (y,)), Step(Operator.EXP, (y,), (z,))]
    given = elements(FLOAT, (4, 5), 1, special=False)
    CupyBackend(device).plan(Program([x], [z], steps)).run([given])
    assert downloads == [(4, 5)]


def test_elements_that_cupy_has_no_dtype_for_are_moved_there(device, downloads):
    dtype = dtype_of("bfloat16") if pytest.importorskip("ml_dtypes") else None
    x = elements(dtype, (2, 3), 1)
    flip = Region((6,), View(5, (-1,)), View(0, (1,)))
    made = run_step(
        CupyBackend(device), Operator.RASTER, [x], regions=(flip,), shape=(7,), dtype=dtype,
        fill=-1.5,
    )  # fmt: skip
    assert made.dtype == dtype
    assert made.tobytes() == np.append(x.reshape(-1)[::-1], dtype.type(-1.5)).tobytes()
    assert downloads == [(7,)]


def test_elements_that_cupy_has_no_dtype_for_are_computed_with_on_the_host(device, downloads):
    dtype = dtype_of("bfloat16") if pytest.importorskip("ml_dtypes") else None
    made = run_step(CupyBackend(device), Operator.ADD, [np.ones(3, dtype)] * 2)
    assert made.astype(FLOAT).tolist() == [2, 2, 2]
    assert downloads == [(3,), (3,), (3,)]


def test_indices_of_a_whole_run_are_looked_at_once(device, downloads):
    data, rows = Tensor((1, 5, 2), FLOAT), Tensor((5,), np.dtype(np.int64))
    first, second = Tensor((1, 5, 2), FLOAT), Tensor((1, 5, 2), FLOAT)
    steps = [
        Step(Operator.TAKE, (data, rows), (first,), {}, "one"),
        Step(Operator.TAKE, (first, rows), (second,), {}, "two"),
    ]
    plan = CupyBackend(device).plan(Program([data, rows], [second], steps))
    x = elements(FLOAT, (1, 5, 2), 1)
    plan.run([x, np.arange(5)])
    assert downloads == [(2,), (1, 5, 2)]
    with pytest.raises(EngineError, match=r"node 'one': take: an index is not in 0 \.\. 4"):
        plan.run([x, np.array([0, 1, 2, 3, 5])])


def test_an_index_is_blamed_before_what_comes_of_it(device):
    """The step after it runs on the host and fails, too."""
    data, rows, wide = (
        Tensor((5, 1), FLOAT),
        Tensor((2,), np.dtype(np.int64)),
        Tensor((5, 1), FLOAT),
    )
    made = Tensor((5, 1), FLOAT)
    steps = [
        Step(Operator.PUT, (data, rows, Tensor((2, 1), FLOAT, np.ones((2, 1), FLOAT))), (wide,), {}, "one"),
        Step(Operator.PUT, (wide, rows, Tensor((2, 1), FLOAT, np.ones((2, 1), FLOAT))), (made,),
             {"reduction": "add"}, "two"),
    ]  # fmt: skip
    plan = CupyBackend(device).plan(Program([data, rows], [made], steps))
    with pytest.raises(EngineError, match="node 'one'"):
        plan.run([np.zeros((5, 1), FLOAT), np.array([0, 7])])


def test_constants_are_uploaded_once_for_all_runs_at_the_same_time(device, monkeypatch):
    fixed = Tensor((4,), FLOAT, np.arange(4, dtype=FLOAT))
    x, made = Tensor((4,), FLOAT), Tensor((4,), FLOAT)
    plan = CupyBackend(device).plan(Program([x], [made], [Step(Operator.ADD, (x, fixed), (made,))]))
    assert plan.constants.of(fixed) is plan.constants.of(fixed)
    plan.run([np.zeros(4, FLOAT)])
    assert len(plan.constants._arrays) == 1


def test_strings_stay_on_the_host_between_steps_of_the_device(device):
    x = Tensor((2,), np.dtype(np.int32))
    doubled = step_of(Operator.ADD, [(x.shape, x.dtype)] * 2)
    text, back = Tensor((2,), np.dtype(object)), Tensor((2,), np.dtype(np.int64))
    steps = [
        Step(Operator.ADD, (x, x), doubled.outputs),
        Step(Operator.CAST, doubled.outputs, (text,), {"dtype": text.dtype}),
        Step(Operator.CAST, (text,), (back,), {"dtype": back.dtype}),
    ]
    made = (
        CupyBackend(device)
        .plan(Program([x], [text, back], steps))
        .run([np.array([3, -4], np.int32)])
    )
    assert [each.tolist() for each in made] == [["6", "-8"], [6, -8]]


def test_a_watch_is_told_of_each_step(device):
    x, y = Tensor((2,), FLOAT), Tensor((2,), FLOAT)
    told = []
    plan = CupyBackend(device).plan(Program([x], [y], [Step(Operator.NEG, (x,), (y,))]))
    plan.run([np.ones(2, FLOAT)], lambda step, ms: told.append((step.operator, ms >= 0)))
    assert told == [(Operator.NEG, True)]


def test_short_memory_of_the_device_is_an_error_of_ours(device, monkeypatch):
    def refuse(shape, dtype):
        raise MemoryError("Out of memory allocating 4 bytes")

    monkeypatch.setattr(device.xp, "empty", refuse)
    with pytest.raises(EngineError, match="memory is exhausted"):
        run_step(CupyBackend(device), Operator.NEG, [np.ones(2, FLOAT)])


@pytest.mark.parametrize(
    ("name", "stored_as"),
    [("float16", "float16"), ("complex64", "complex64"), ("bool", "bool"), ("bfloat16", "uint16"),
     ("int4", "uint8"), ("float8_e5m2", "uint8")],
)  # fmt: skip
def test_a_dtype_lies_as_itself_or_as_its_bytes(name, stored_as):
    pytest.importorskip("ml_dtypes")
    assert stored(dtype_of(name)) == np.dtype(stored_as)


class TestTheStandIn:
    def test_refuses_to_become_an_array_of_numpy(self, device):
        x = device.xp.asarray(np.ones(2))
        for use in (np.asarray, list, bool, lambda each: np.add(np.ones(2), each)):
            with pytest.raises(TypeError):
                use(x)
        with pytest.raises(TypeError):
            np.copyto(np.ones(2), x)

    def test_refuses_arrays_of_numpy(self, device):
        x = device.xp.asarray(np.ones(2))
        for use in (device.xp.add, device.xp.matmul, device.xp.copyto):
            with pytest.raises(TypeError, match="Unsupported type"):
                use(x, np.ones(2))
        with pytest.raises(TypeError, match="Unsupported type"):
            device.xp.add(x, x, out=np.ones(2))

    def test_has_numpys_own_dtypes_alone(self, device):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        for dtype in (object, ml_dtypes.bfloat16):
            with pytest.raises(TypeError, match="Unsupported dtype"):
                device.xp.asarray(np.zeros(2, dtype))

    def test_copies_on_the_way(self, device):
        x = np.ones(2)
        there = device.xp.asarray(x)
        x[0] = 5
        back = device.xp.asnumpy(there)
        back[1] = 7
        assert device.xp.asnumpy(there).tolist() == [1, 1]

    def test_gives_what_cupy_gives_where_it_differs(self, device):
        xp = device.xp
        nan = xp.asarray(np.array([np.nan]))
        assert xp.asnumpy(xp.sign(nan)).tolist() == [0]
        with pytest.raises(TypeError):
            xp.ceil(xp.asarray(np.array([3])))
        rows = xp.asarray(np.array([7, -1]))
        assert xp.asnumpy(xp.take(xp.asarray(np.arange(5)), rows, axis=0)).tolist() == [2, 4]
