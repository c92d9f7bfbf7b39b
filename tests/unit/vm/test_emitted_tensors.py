"""Tensors in features: one crossing for all runs of a call, and the same bytes as one by one."""

import json
import time
from typing import Any

import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import TensorError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.services import HostServices

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("cpu_clock")]

RUNS = 4


class Counting(EngineEvaluator):
    """Counts crossings; may refuse those of several runs."""

    def __init__(self, *, is_eager: bool = False, models: Any = None) -> None:
        super().__init__(NumpyBackend(), models)
        self.is_eager = is_eager
        self.alone: list[Any] = []
        self.together: list[int] = []

    def evaluate(self, graph: Any) -> Any:
        self.alone.append(graph)
        return super().evaluate_all([graph])[0]

    def evaluate_all(self, graphs: Any) -> Any:
        self.together.append(len(graphs))
        if self.is_eager:
            raise TensorError("each alone")
        return super().evaluate_all(graphs)


class Batch:
    """Runs bodies on a batch of two devices, several runs each; ``page.trigger['n']`` counts."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def __call__(
        self, body: str, evaluator: Any = None, isolation: Any = "shared", calls: int = 1, **limits: Any
    ) -> list[list[Any]]:  # fmt: skip
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        source = f"def run(ctx, page):\n    n = page.trigger['n']\n{lines}"
        program = TaskProgram(
            "t",
            "v",
            source,
            "t.py",
            # a process is watched by the machine's clock
            limits=RunLimits(
                **{"wall_time_ms": 500 if isolation != "process" else 5_000, **limits}
            ),
            isolation=isolation,
        )
        services = HostServices(Counting() if evaluator is None else evaluator)
        with VmPool({"t": program}, PoolLimits(), services=services) as pool:
            found = []
            for _ in range(calls):
                runs = [(n, 5, self._page({"n": n})) for n in range(RUNS)]
                groups: Any = [(f"d{k}", {"old": b"7"}, runs) for k in range(2)]
                found.append(pool.run("t", groups))
            assert pool.counts.crashes == 0
        return found

    def both(self, body: str, **more: Any) -> list[Any]:
        """The same, evaluated at the end of the call and at each emit: equal, to the byte."""
        late, early = self(body, Counting(**more)), self(body, Counting(is_eager=True, **more))
        assert late == early
        return late[0]


@pytest.fixture
def batch(page: Any) -> Batch:
    return Batch(page)


def features(groups: Any) -> list[Any]:
    return [
        [json.loads(emit[0]) for run in group.runs for emit in run.emits] for group in groups
    ]  # fmt: skip


SCORES = """
x = ctx.tensor([[float(n), 2.0], [1.0, 1.0]])
y = (x @ x).relu()
ctx.emit({"n": n, "y": y, "top": {"best": [y.argmax(), None, (y.sum(),)]}}, b"e")
"""


@pytest.mark.parametrize("isolation", ["shared", "device", "process"])
def test_all_runs_of_a_call_cross_once(batch: Batch, isolation: str) -> None:
    counting = Counting()
    found = batch(SCORES, counting, isolation)[0]
    calls = 2 if isolation == "device" else 1
    assert (counting.alone, counting.together) == ([], [2 * RUNS // calls] * calls)
    for group in found:
        assert [run.emits[0][1] for run in group.runs] == [b"e"] * RUNS
    for device in features(found):
        for n, feature in enumerate(device):
            y = [[n * n + 2.0, 2.0 * n + 2], [n + 1.0, 3.0]]
            best = max(range(4), key=lambda k: (y[k // 2][k % 2], -k))
            assert feature["y"] == y
            assert feature["top"] == {"best": [best, None, [sum(map(sum, y))]]}


def test_a_tensor_stands_for_what_tolist_gives(batch: Batch) -> None:
    emitted = batch("""
x = ctx.tensor([[0.1, -2.5]])
ctx.emit({"0\\0": "\\0", "\\u00000": [x / 3, (x * 2).sum(), ctx.tensor([]) + 1, ctx.tensor(5)]})
""")
    listed = batch("""
x = ctx.tensor([[0.1, -2.5]])
a, b, c, d = x / 3, (x * 2).sum(), ctx.tensor([]) + 1, ctx.tensor(5)
ctx.emit({"0\\0": "\\0", "\\u00000": [a.tolist(), b.tolist(), c.tolist(), d.tolist()]})
""")
    assert emitted == listed


@pytest.mark.parametrize(
    "body",
    [
        SCORES,
        # what is emitted is what it was then
        "d = {'x': ctx.tensor([n]) + 1}\nctx.emit(d)\nd['x'] = 5\nctx.emit(d)",
        # known, emitted twice, and built on
        ("x = ctx.tensor([n]) + 1\ny = x * 2\ny.tolist()\nctx.emit({'x': x, 'y': y})\n"
        "ctx.emit({'x': x, 'z': x @ y})\nctx.emit({'x': x})"),
        # asked for behind the emit
        ("x = ctx.tensor([n]) + 1\nctx.emit({'x': x})\ny = x + 1\nctx.emit({'y': y})\n"
        "ctx.emit({'x': x.tolist(), 'text': repr(y), 'z': y + x, 'last': repr(x - 1)})"),
        # state, calls and lines
        ("k = ctx.state.get('k', 0)\nctx.state.put('k', k + n)\nctx.log.info('run %s', n)\n"
        "ctx.emit({'k': ctx.tensor([k]) + 1})\nctx.call_cloud('s', {'n': ctx.random.random()})"),
        # failures of runs, before and behind
        "if n == 2: raise ValueError('no')\nctx.state.put('n', n)\nctx.emit({'x': ctx.tensor([n]) + 1})",
        "ctx.emit({'x': ctx.tensor([n]) + 1})\nctx.state.put('n', n)\nif n == 2: raise ValueError('no')",
        # an emit that fails in one of the runs; those behind it see the state without it
        ("k = ctx.state.get('k', 0)\nctx.state.put('k', k + 1)\nctx.log.info('x')\n"
        "ctx.emit({'k': k, 'x': ctx.tensor([1] * 3) + ctx.tensor([1] * (n if n != 2 else 9) if n > 1 else 3)})"),
        "k = ctx.state.get('k', 0)\nctx.state.put('k', k + 1)\nctx.emit({'k': k, 'x': 1 / ctx.tensor([float(n - 2)])})",
        ("try: ctx.emit({'x': ctx.tensor([1, 2]) + ctx.tensor([1, 2, 3])})\n"
        "except RuntimeError as error: ctx.emit({'said': str(error)})"),
        # the emit failed before the run did
        "ctx.emit({'x': ctx.run_model('no', [1.0])})\nraise ValueError('later')",
        "ctx.emit({'x': ctx.run_model('no', [1.0])})\nwhile n == 1: pass",
        "x = ctx.run_model('no', [1.0])\nctx.emit({'x': x})\ntry: x.tolist()\nexcept BaseException: pass",
    ],
)  # fmt: skip
def test_late_and_early_give_the_same(batch: Batch, body: str) -> None:
    batch.both(body)


def test_a_failed_emit_fails_its_run_alone(batch: Batch) -> None:
    body = """
k = ctx.state.get("k", 0)
ctx.state.put("k", k + 1)
ctx.emit({"k": k, "x": (ctx.tensor([1.0]) / ctx.tensor([float(n - 2)]))})
"""
    (group, _) = batch.both(body)
    assert [run.ok for run in group.runs] == [True, True, False, True]
    assert group.runs[2].message.startswith("t.py:6: ValueError: Out of range float")
    assert json.loads(group.runs[3].emits[0][0])["k"] == 2
    assert dict(group.state) == {"k": b"3"}


@pytest.mark.parametrize("limit", [*range(18, 60, 3)])
def test_bounds_count_what_tensors_became(batch: Batch, limit: int) -> None:
    body = """
for part in (ctx.tensor([n * 100.5]) + 1, "xx", ctx.tensor([1] * n) * 10, 7):
    try:
        ctx.emit({"v": part}, b"e")
    except ValueError as error:
        ctx.log.info("%s", error)
try: ctx.call_cloud("s", {"q": 1})
except ValueError: ctx.state.put("refused", 1)
"""
    late = batch(body, output_bytes=limit)
    assert late == batch(body, Counting(is_eager=True), output_bytes=limit)
    assert all(sum(map(len, emit)) <= limit for g in late[0] for r in g.runs for emit in r.emits)


def test_a_huge_tensor_is_refused_before_it_is_a_list(batch: Batch) -> None:
    body = "ctx.emit({'x': ctx.tensor([0.0]).take([0] * 1000).reshape(-1, 1) + ctx.tensor([0.0] * 1000)})"
    found = batch(body)
    assert "a run may emit 1048576 bytes" in found[0][0].runs[0].message


def test_what_waits_is_bounded(batch: Batch) -> None:
    counting = Counting()
    body = "x = ctx.tensor(bytes(8_000_000), 'uint8')\nctx.emit({'x': (x + n).max()})"
    body += "\nctx.emit({'x': (x + n).min()})"
    found = batch(body, counting)[0]
    # 64 MiB: at the end of the fifth run
    assert counting.together == [10, 6]
    assert sum(counting.together) == 2 * 2 * RUNS
    assert features(found) == [[{"x": n} for n in range(RUNS) for _ in range(2)]] * 2


def test_a_run_that_emits_many_is_asked_about_its_time(batch: Batch) -> None:
    counting = Counting()
    found = batch("for k in range(250): ctx.emit({'x': ctx.tensor([k]) + n})", counting)[0]
    # 101 and 101 of each run, then what is left of all
    assert counting.together == [101] * (2 * 2 * RUNS) + [48 * 2 * RUNS]
    assert features(found) == [[{"x": [k + n]} for n in range(RUNS) for k in range(250)]] * 2


def test_a_loop_of_slow_emits_ends_as_one_of_questions_does(batch: Batch) -> None:
    class Slow(Counting):
        def evaluate_all(self, graphs: Any) -> Any:
            time.sleep(0.35)
            return super().evaluate_all(graphs)

        def evaluate(self, graph: Any) -> Any:
            time.sleep(0.06)
            return super().evaluate(graph)

    body = "while n == 2: ctx.emit({'x': ctx.tensor([n]) + 1})"
    found = batch(body, Slow(), wall_time_ms=60)[0]
    assert "a run may wait for the host for 10 times limits.wallTime" in found[0].runs[2].message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{ctx.tensor([1]): 1}", "keys must be"),
        ("{'x': ctx.tensor([1]), 'y': object()}", "a 'object' object is not JSON"),
        ("{'x': ctx.tensor([1]), 'y': float('nan')}", "Out of range float"),
    ],
)
def test_what_is_no_feature_is_refused_at_the_emit(batch: Batch, value: str, words: str) -> None:
    body = f"try: ctx.emit({value})\nexcept (TypeError, ValueError) as error: ctx.emit({{'e': str(error)}})"
    assert words in features(batch(body)[0])[0][0]["e"]


def test_tensors_are_for_features_alone(batch: Batch) -> None:
    for line in (
        "ctx.state.put('x', ctx.tensor([1]))",
        "ctx.call_cloud('s', {'x': ctx.tensor([1])})",
    ):
        assert "a 'Tensor' object is not JSON" in batch(line)[0][0].runs[0].message


def test_a_crossing_that_is_refused_is_made_up_for(batch: Batch) -> None:
    counting = Counting(is_eager=True)
    batch(SCORES, counting, calls=2)
    assert (len(counting.alone), counting.together) == (2 * 2 * RUNS, [2 * RUNS] * 2)


def test_scripts_that_ask_first_go_on_as_they_can(batch: Batch) -> None:
    body = "k = (ctx.tensor([n]) + 1).item()\nctx.emit({'x': ctx.tensor([k]) * 2})"
    counting = Counting()
    first, second = batch(body, counting, calls=2)
    assert first == second
    # the first call did not know that tensors would be emitted
    assert counting.together == [2 * RUNS]
    assert len(counting.alone) == 3 * 2 * RUNS


def test_a_run_without_memory_is_not_to_blame_for_what_waits(batch: Batch) -> None:
    body = """
ctx.emit({"x": ctx.tensor([n]) + 1})
if n == 1: raise MemoryError("full")
"""
    counting = Counting()
    found = batch(body, counting)[0]
    assert [run.ok for run in found[0].runs] == [True, False, True, True]
    assert (len(counting.alone), counting.together) == (2 * RUNS, [])


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_replies_emit_tensors_and_states_migrate_as_ever(
    batch: Batch, isolation: Any
) -> None:  # fmt: skip
    source = """
def run(ctx, page): pass
def on_reply(ctx, reply):
    ctx.state.put("n", ctx.state.get("n") + 1)
    ctx.emit({"x": ctx.tensor([reply.value]) / ctx.tensor([reply.value - 2.0])})
def migrate(old): return {"n": old.get("was", 0) * 10}
"""
    program = TaskProgram("t", "v", source, "t.py", isolation=isolation, state_version=2)
    found = []
    for is_eager in (False, True):
        evaluator = Counting(is_eager=is_eager)
        with VmPool({"t": program}, PoolLimits(), services=HostServices(evaluator)) as pool:
            replies = [(k, 5, ["1.1", "s", "", b"%d" % k]) for k in range(1, 4)]
            (group,) = pool.run("t", [("d", {"was": b"4"}, replies)])
            found.append(group)
    assert found[0] == found[1]
    assert [run.ok for run in found[0].runs] == [True, False, True]
    assert found[0].state["n"] == b"42"
