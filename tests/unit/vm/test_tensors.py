"""Tensors in a script: built there, computed by the host, in one crossing."""

import json
import math
import time
from typing import Any

import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import FrameError
from walle_stream.vm.guest.layout import STATUS_ASKS
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.services import HostServices

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]


LONG = "ctx.tensor([0.0]).take([0] * 100_000)"


class Evaluator(EngineEvaluator):
    def __init__(self) -> None:
        super().__init__(NumpyBackend())


class Counting(Evaluator):
    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Any] = []

    def evaluate(self, graph: Any) -> Any:
        self.graphs.append(graph)
        return super().evaluate(graph)


@pytest.fixture
def compute(page: Any) -> Any:
    """Runs a body with tensors; returns what it put into ``out``, or the error."""

    def run(body: str, isolation: Any = "shared", evaluator: Any = None, **limits: Any) -> Any:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        source = f"def run(ctx, page):\n    out = {{}}\n{lines}    ctx.emit(out)\n"
        program = TaskProgram(
            "t", "v", source, "t.py", limits=RunLimits(**limits), isolation=isolation
        )
        services = HostServices(Evaluator() if evaluator is None else evaluator)
        with VmPool({"t": program}, PoolLimits(), services=services) as pool:
            results = pool.run("t", [(f"d{n}", {}, [(1, 0, page())]) for n in range(2)])
            assert pool.counts.crashes == 0
        first, second = (group.runs[0] for group in results)
        assert (first.ok, first.emits) == (second.ok, second.emits)
        return json.loads(first.emits[0][0]) if first.ok else first.message

    return run


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_a_small_model_runs_in_a_script(compute: Any, isolation: str) -> None:
    body = """
x = ctx.tensor([[1.0, 2.0], [3.0, 4.0]])
w = ctx.tensor([[0.5, -1.0], [0.25, 1.0]])
y = ((x @ w + ctx.tensor([0.0, 1.0])).relu() * 2).softmax()
out["y"] = [[round(value, 5) for value in row] for row in y.tolist()]
out["top"] = y.argmax(axis=1).tolist()
out["shape"] = y.shape
"""
    expected = []
    for a, b in ((1, 2), (3, 4)):
        row = [max(a * 0.5 + b * 0.25, 0) * 2, max(-a + b + 1.0, 0) * 2]
        total = sum(math.exp(value) for value in row)
        expected.append([round(math.exp(value) / total, 5) for value in row])
    found = compute(body, isolation)
    assert found["y"] == [[pytest.approx(v, abs=2e-5) for v in row] for row in expected]
    assert (found["top"], found["shape"]) == ([1, 0], [2, 2])


def test_many_tensors_cross_at_once_and_what_is_known_never_again(compute: Any) -> None:
    counting = Counting()
    body = """
a = ctx.tensor([1.0, 2.0])
b, c = a + 1, a * a
d = b + c
ctx.evaluate(b, c, d)
out["all"] = [b.tolist(), c.tolist(), d.tolist(), d.dtype, list(d.shape)]
e = d + 1
out["e"] = e.tolist()
out["a"] = a.tolist()
"""
    assert compute(body, evaluator=counting) == {
        "all": [[2, 3], [1, 4], [3, 7], "float32", [2]],
        "e": [4, 8],
        "a": [1, 2],
    }
    assert len(counting.graphs) == 4  # two runs, two crossings each
    assert len(counting.graphs[1].constants) == 2  # d has its value: nothing behind it is sent


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ctx.tensor(3)", 3),
        ("ctx.tensor([[1, 2], [3, 4]]).sum()", 10),
        ("ctx.tensor([[1, 2], [3, 4]]).sum(axis=0)", [4, 6]),
        ("ctx.tensor([[1, 2], [3, 4]]).mean(axis=1)", [1.5, 3.5]),
        ("ctx.tensor([[1, 2], [3, 4]]).max(axis=0)", [3, 4]),
        ("ctx.tensor([[1, 2], [3, 4]]).min()", 1),
        ("ctx.tensor([1, 2]) / 2", [0.5, 1.0]),
        ("2 - ctx.tensor([1, 2])", [1, 0]),
        ("1 / ctx.tensor([2.0, 4.0])", [0.5, 0.25]),
        ("-ctx.tensor([1, -2])", [-1, 2]),
        ("ctx.tensor([1.5, -2]).abs()", [1.5, 2]),
        ("ctx.tensor([2.0]) ** 3", [8]),
        ("ctx.tensor([1, 5]).maximum(3)", [3, 5]),
        ("ctx.tensor([1, 5]).minimum(3)", [1, 3]),
        ("ctx.tensor([0.0]).exp()", [1]),
        ("ctx.tensor([0.5, 1.5, -2.7]).round()", [0, 2, -3]),
        ("(ctx.tensor([1.0]) / 3).astype('float64').round(5)", [0.33333]),
        ("ctx.tensor([7]).round(2)", [7]),
        ("ctx.tensor([1.0]).log()", [0]),
        ("ctx.tensor([4]).sqrt()", [2]),
        ("ctx.tensor([0.0]).tanh()", [0]),
        ("ctx.tensor([0.0]).sigmoid()", [0.5]),
        ("ctx.tensor([[1, 2, 3]]).reshape(3, -1)", [[1], [2], [3]]),
        ("ctx.tensor([[1, 2, 3]]).transpose()", [[1], [2], [3]]),
        ("ctx.tensor([[[1], [2]]]).transpose(1, 0, 2)", [[[1]], [[2]]]),
        ("ctx.tensor([[1, 2], [3, 4], [5, 6]]).take([2, 0])", [[5, 6], [1, 2]]),
        ("ctx.concat([ctx.tensor([1]), ctx.tensor([2, 3])])", [1, 2, 3]),
        ("ctx.tensor([1.7]).astype('int64')", [1]),
        ("ctx.tensor(b'\\x01\\x02', 'uint8', (2, 1))", [[1], [2]]),
        ("ctx.tensor([])", []),
        ("ctx.tensor([True, False], 'uint8')", [1, 0]),
    ],
)
def test_operators_give_what_numpy_gives(compute: Any, expression: str, expected: Any) -> None:
    assert compute(f"out['x'] = ({expression}).tolist()") == {"x": expected}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (
            "ctx.tensor([1, 2]) + ctx.tensor([1, 2, 3])",
            "node 2: add of shapes (2,), (3,): shapes [2], [3] do not fit each other",
        ),
        ("ctx.tensor([[1]]) @ ctx.tensor([[1], [2]])", "matmul of shapes (1, 1), (2, 1)"),
        ("ctx.tensor([1]).reshape(3)", "shape [1] cannot become [3]"),
        ("ctx.tensor([1]).take([5])", "index 5 is not in 0 .. 0"),
        ("ctx.tensor([1]).sum(axis=3)", "there is no axis 3 of 1"),
        ("ctx.tensor([1]).sum(axis='x')", "axis is a whole number"),
        ("ctx.tensor([1]).astype('object')", "there is no dtype 'object'"),
        ("ctx.concat([])", "node 0: concat"),
        ("ctx.tensor([1.0]).round(16)", "digits are 0 to 15, not 16"),
        (f"{LONG} + {LONG}.reshape(-1, 1)", "too many"),
        ("ctx.tensor(['x'])", "a tensor holds numbers, not str"),
        ("ctx.tensor([[1], [2, 3]])", "one length each"),
        ("ctx.tensor([1], 'complex64')", "a tensor's dtype is one of"),
        ("ctx.tensor(b'abc', 'float32', (1,))", "do not fill the shape"),
        ("ctx.tensor(b'', 'float32', (-1, 0))", "do not fill the shape"),
    ],
)
def test_what_cannot_be_computed_fails_the_run_alone(
    compute: Any, expression: str, words: str
) -> None:
    assert words in compute(f"out['x'] = ({expression}).tolist()")


def test_large_requests_and_answers_cross_in_parts(compute: Any) -> None:
    body = """
x = ctx.tensor(bytes(4 * 300_000), "float32", (300, 1000))
y = x + 1
out["sum"] = y.sum().item()
data = (y * 2).tobytes()
out["size"], out["same"] = len(data), data == data[:4] * 300_000
"""
    for isolation in ("shared", "process"):
        assert compute(body, isolation) == {"sum": 300_000, "size": 1_200_000, "same": True}


def test_a_host_without_an_engine_says_so(compute: Any, page: Any) -> None:
    program = TaskProgram("t", "v", "def run(ctx, page): ctx.tensor([1]).sum().item()", "t.py")
    with VmPool({"t": program}, 1) as pool:
        (group,) = pool.run("t", [("d", {}, [(1, 0, page())])])
    assert "this host cannot answer the request: it has no tensor engine" in group.runs[0].message


def test_what_the_host_takes_is_not_the_run_s_time(compute: Any) -> None:
    class Slow(Evaluator):
        def evaluate(self, graph: Any) -> Any:
            for _ in range(3):
                # longer than the limit, and not a sleep: work
                sum(range(2_000_000))
            return super().evaluate(graph)

    body = "out['x'] = ctx.tensor([1]).sum().item()"
    assert compute(body, evaluator=Slow(), wall_time_ms=20) == {"x": 1}


class Lying:
    """A guest that breaks the exchange, as ``HostServices`` sees it."""

    def __init__(self, heads: list[tuple[int, int]], statuses: list[int]) -> None:
        self.given, self.statuses = iter(heads), iter(statuses)
        self.memory = memoryview(bytearray(4096)), memoryview(bytearray(4096))

    def heads(self) -> tuple[int, int]:
        return next(self.given)

    def buffers(self) -> tuple[memoryview, memoryview]:
        return self.memory

    def order(self, _command: int) -> int:
        return next(self.statuses)


@pytest.mark.parametrize(
    ("heads", "statuses"),
    [
        ([(1 << 40, 1)], []),
        ([(5, 0)], []),
        ([(5, 9)], []),
        ([(1 << 20, 1 << 20)], []),
        ([(10, 4)], [1]),
        ([(10, 4), (7, 4)], [STATUS_ASKS]),
    ],
)
def test_a_guest_that_breaks_the_exchange_is_refused(heads: Any, statuses: Any) -> None:
    with pytest.raises(FrameError):
        HostServices(Evaluator()).answer(Lying(heads, statuses))


@pytest.mark.parametrize("isolation", ["shared", "process"])
@pytest.mark.usefixtures("cpu_clock")
def test_a_loop_of_questions_is_stopped(compute: Any, isolation: str) -> None:
    body = """
while True:
    try: (ctx.tensor([1.0]) + 1).tolist()
    except RuntimeError as error: said = error"""
    found = compute(body, isolation, wall_time_ms=200)
    assert found.endswith("took longer than 0.2 s (limits.wallTime) and was stopped")


def test_a_run_asks_for_so_long_at_most(compute: Any) -> None:
    class Slow(Evaluator):
        def evaluate(self, graph: Any) -> Any:
            time.sleep(0.2)
            return super().evaluate(graph)

    body = "while True: (ctx.tensor([1.0]) + 1).tolist()"
    found = compute(body, evaluator=Slow(), wall_time_ms=50)
    assert found == "t.py:3: RuntimeError: a run may wait for the host for 10 times limits.wallTime"


def test_a_loop_of_slow_questions_is_stopped(compute: Any) -> None:
    class Slow(Evaluator):
        def evaluate(self, graph: Any) -> Any:
            time.sleep(0.01)
            return super().evaluate(graph)

    body = """
while True:
    try: (ctx.tensor([1.0]) + 1).tolist()
    except RuntimeError as error: said = error"""
    found = compute(body, evaluator=Slow(), wall_time_ms=100)
    assert found.endswith("took longer than 0.1 s (limits.wallTime) and was stopped")


def test_numbers_and_lists_may_stand_on_the_left(compute: Any) -> None:
    body = """
x = ctx.tensor([1.0, 2.0])
out["pow"], out["matmul"] = (2 ** x).tolist(), ([1.0, 3.0] @ x).tolist()
"""
    assert compute(body) == {"pow": [2.0, 4.0], "matmul": 7.0}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ctx.concat([1, 2])", "a tensor is needed here, not int"),
        ("ctx.evaluate(5)", "a tensor is needed here, not int"),
        ("ctx.tensor([1.0]).take([0.5]).tolist()", "indices are whole numbers, not float32"),
    ],
)
def test_what_is_no_tensor_and_no_index_is_refused(compute: Any, line: str, words: str) -> None:
    assert words in compute(line)
