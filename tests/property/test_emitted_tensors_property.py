"""Tensors in features: at the end of the call or at each emit, in any batches: the same bytes."""

import random
from typing import Any

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.batching import BatchedModel
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.engine.graph import Graph, Model, Node, TensorType
from walle_stream.engine.hosted import HostedModel
from walle_stream.engine.models import Module
from walle_stream.errors import TensorError
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.services import HostServices

pytestmark = pytest.mark.vm

DEVICES, RUNS, CASES = 4, 8, 8
FLOAT = np.dtype(np.float32)

# what a run does follows from its device and position, and from what it kept
SCRIPT = """
def run(ctx, page):
    r = ctx.random
    seen = ctx.state.get("seen", 0)
    ctx.state.put("seen", seen + 1)
    kept = [ctx.tensor([[r.uniform(-1, 1) for _ in range(19)] for _ in range(r.choice([2, 3]))])]
    if ctx.config["asks"] and r.random() < 0.3:
        seen += kept[0].sum().item()
    for _ in range(r.randint(2, 9)):
        a, b = r.choice(kept), r.choice(kept)
        step = r.randrange(14)
        if step == 0:
            kept.append(a * b if r.random() < 0.1 else a * 2)
        elif step == 1:
            kept.append((a @ b.transpose()).softmax())
        elif step == 2:
            kept.append(ctx.run_model("rank", a))
        elif step == 3:
            kept.append(ctx.run_model("twice", a, output=r.choice([0, 0, 0, 1])))
        elif step == 4:
            kept.append(a.take([0, -1]))
        elif step == 5:
            kept.append(a.sum(axis=1).exp())
        elif step == 6 and r.random() < 0.1:
            kept.append(a / 0)
        elif step == 7:
            ctx.log.info("%s", repr(a)) if r.random() < 0.1 else ctx.evaluate(a, b)
        elif step == 8:
            ctx.state.put("k%d" % r.randrange(2), seen)
        elif step == 9 and r.random() < 0.1:
            raise ValueError("stopped")
        elif step == 10:
            ctx.call_cloud("s", {"seen": seen})
        elif step == 11:
            try:
                ctx.emit({"tried": a, "n": seen})
            except (RuntimeError, ValueError) as error:
                ctx.emit({"failed": str(error)})
        else:
            ctx.emit({"n": seen, "a": a, "more": [b, {"b": (b.argmax(), None)}]}, b"e")
    ctx.emit({"last": kept[-1], "n": seen})
"""
CALM = (
    SCRIPT.replace("< 0.1", "< 0.0")
    .replace("step == 7", "step == 70")
    .replace("r.choice([0, 0, 0, 1])", "0")
)
CALM = CALM.replace("(a @ b.transpose())", "a").replace("a.sum(axis=1).exp()", "a.tanh()")

ROW = ("a", "click", 1, 1, None)
PAGE = ("p", "i", "none", None, ROW, [ROW])


class Evaluator(EngineEvaluator):
    """With two models; refuses crossings of many, if it is told so."""

    def __init__(self, *, is_eager: bool = False) -> None:
        weights = np.random.default_rng(1).normal(size=(19, 19)).astype(FLOAT)
        nodes = (
            Node("MatMul", ("x", "w"), ("m",), {}, "m", "", 21),
            Node("Tanh", ("m",), ("y",), {}, "y", "", 21),
        )
        graph = Graph("g", {"x": TensorType(FLOAT, ("n", 19))}, {"y": None}, nodes, {"w": weights})
        rank = BatchedModel(HostedModel(Module(Model(graph))), 8, "rank")
        super().__init__(NumpyBackend(), {"rank": rank, "twice": lambda x: x * 2})
        self.is_eager = is_eager
        self.alone = self.together = 0

    def evaluate(self, graph: Any) -> Any:
        self.alone += 1
        return super().evaluate_all([graph])[0]

    def evaluate_all(self, graphs: Any) -> Any:
        self.together += 1
        if self.is_eager:
            raise TensorError("each alone")
        return super().evaluate_all(graphs)


def outcome(script: str, evaluator: Evaluator, cuts: list[int], case: int) -> Any:
    """Results and state by device, when the runs of all devices come in some batches."""
    is_tight = case % 2 and script is SCRIPT
    limits = RunLimits(output_bytes=6_000 if is_tight else 1 << 20)
    program = TaskProgram("t", "v", script, "t.py", {"asks": case % 3 == 0}, limits)
    states: dict[str, dict[str, bytes]] = {f"d{k}": {} for k in range(DEVICES)}
    found: dict[str, list[Any]] = {name: [] for name in states}
    with VmPool({"t": program}, 1, services=HostServices(evaluator)) as pool:
        for begin, end in zip([0, *cuts], [*cuts, RUNS], strict=True):
            runs = [(case * 100 + n, 5, PAGE) for n in range(begin, end)]
            groups: Any = [(name, dict(state), list(runs)) for name, state in states.items()]
            for group in pool.run("t", groups):
                found[group.device_id] += group.runs
                for key, value in group.state.items():
                    if value is None:
                        states[group.device_id].pop(key)
                    else:
                        states[group.device_id][key] = value
    return found, states


@pytest.mark.parametrize("script", [SCRIPT, CALM], ids=["wild", "calm"])
def test_late_and_early_and_any_batches_give_the_same_bytes(script: str) -> None:
    rng, failed, emitted = random.Random(11), 0, 0
    for case in range(CASES):
        expected = outcome(script, Evaluator(is_eager=True), [], case)
        runs = [run for some in expected[0].values() for run in some]
        failed += sum(not run.ok for run in runs)
        emitted += sum(len(run.emits) for run in runs)
        for cuts in ([], sorted(rng.sample(range(1, RUNS), 3)), list(range(1, RUNS))):
            evaluator = Evaluator()
            assert outcome(script, evaluator, cuts, case) == expected
            if script is CALM and case % 3:
                assert (evaluator.alone, evaluator.together) == (0, len(cuts) + 1)
    assert emitted > CASES * DEVICES * RUNS
    assert (failed > CASES) is (script is SCRIPT)
