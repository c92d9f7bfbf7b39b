"""A model that asks for too much is told so, and which limit it is."""

from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from walle_stream.engine.backends import backend_named
from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Function, Graph, Node
from walle_stream.engine.limits import Budget, Limits, check_memory, memory_of_machine
from walle_stream.engine.module import GraphRunner
from walle_stream.errors import EngineError

X = np.ones((4, 4), np.float32)


@pytest.fixture(params=["reference", "numpy"])
def backend(request):
    return backend_named(request.param)


def node(operator, inputs, outputs, **attributes):
    return Node(operator, tuple(inputs), tuple(outputs), attributes, "it", "", 21)


def graph(nodes, inputs=("x",), outputs=("y",)):
    return Graph("test", dict.fromkeys(inputs), dict.fromkeys(outputs), tuple(nodes))


def endless(*more, state="Identity", outputs=("go_on", "next")):
    body = graph(
        [node("Identity", ["go"], ["go_on"]), node(state, ["s"] * (1 + (state != "Identity")), ["next"]), *more],
        ("n", "go", "s"), outputs,
    )  # fmt: skip
    outside = ["y"] + ["z"] * (len(outputs) - 2)
    return graph([node("Loop", ["", "", "x"], outside, body=body)])


def refused(model, backend, functions=None, **limits):
    runner = GraphRunner(model, functions or {}, backend, Limits(**limits))
    with pytest.raises(EngineError) as caught:
        runner.run({"x": X})
    assert next(iter(limits)) in str(caught.value)
    return runner


def test_a_loop_without_end_is_ended(backend):
    refused(endless(), backend, iterations=50)


def test_a_loop_without_end_is_ended_in_time(backend):
    refused(endless(), backend, seconds=0.05)


def test_loops_in_loops_count_together(backend):
    inner = graph(
        [node("Identity", ["go"], ["on"]), node("Identity", ["s"], ["t"])],
        ("n", "go", "s"),
        ("on", "t"),
    )
    body = graph(
        [node("Identity", ["go"], ["on"]), node("Loop", ["count", "", "s"], ["t"], body=inner)],
        ("n", "go", "s"), ("on", "t"),
    )  # fmt: skip
    model = graph([node("Loop", ["count", "", "x"], ["y"], body=body)], ("x", "count"))
    given = {"x": X, "count": np.array(10)}
    GraphRunner(model, {}, backend, Limits(iterations=110)).run(given)
    with pytest.raises(EngineError, match="iterations"):
        GraphRunner(model, {}, backend, Limits(iterations=109)).run(given)


def test_what_a_loop_collects_is_bounded(backend):
    row = node("Identity", ["s"], ["row"])
    refused(endless(row, outputs=("go_on", "next", "row")), backend, nbytes=10_000)


def test_the_work_of_all_iterations_is_bounded(backend):
    refused(endless(state="Mul"), backend, work=5_000)


def test_a_new_run_begins_anew(backend):
    runner = GraphRunner(graph([node("Mul", ["x", "x"], ["y"])]), {}, backend, Limits(work=100))
    for _ in range(5):
        runner.run({"x": X})


def test_a_product_that_nobody_can_compute_is_refused_before(backend):
    model = graph([node("MatMul", ["x", "x"], ["y"])])
    GraphRunner(model, {}, backend, Limits(work=64)).run({"x": X})
    refused(model, backend, work=63)


def test_memory_is_refused_before_it_is_asked_for(backend):
    refused(graph([node("Exp", ["x"], ["y"])]), backend, nbytes=63)


def test_constants_that_are_computed_at_once_are_bounded(backend):
    known = Graph("test", {}, {"y": None}, (node("Exp", ["c"], ["y"]),), {"c": X})
    with pytest.raises(EngineError, match="nbytes"):
        GraphRunner(known, {}, backend, Limits(nbytes=63)).run({})


def test_steps_are_bounded(backend):
    names = ["x", *(f"v{number}" for number in range(9)), "y"]
    refused(
        graph([node("Exp", [a], [b]) for a, b in pairwise(names)]),
        backend,
        steps=9,
    )


def test_functions_that_double_are_bounded(backend):
    def called(number):
        each = f"F{number + 1}" if number < 40 else "Neg"
        return Function(
            ("a",), ("b",), (), {}, (node(each, ["a"], ["m"]), node(each, ["m"], ["b"]))
        )

    functions = {("", f"F{number}", ""): called(number) for number in range(41)}
    refused(graph([node("F0", ["x"], ["y"])]), backend, functions, nodes=500)


def test_memory_that_runs_out_is_an_error_of_the_engine():
    class Full(Interpreter):
        def plan(self, program):
            raise MemoryError(f"of {program}")

    with pytest.raises(EngineError, match="not enough memory"):
        GraphRunner(graph([node("Exp", ["x"], ["y"])]), {}, Full()).run({"x": X})


def test_the_memory_of_the_machine_is_the_limit():
    assert Limits().nbytes == memory_of_machine() > 1 << 26
    with pytest.raises(EngineError, match="nbytes"):
        check_memory(1 << 60, Limits())


@pytest.mark.parametrize("name", ["iterations", "nodes", "steps", "work", "nbytes", "seconds"])
@pytest.mark.parametrize("value", ["x", -1, True, 1j])
def test_a_limit_is_a_number(name, value):
    with pytest.raises(EngineError, match=rf"Limits\.{name} is a .*number.*, not"):
        Limits(**{name: value})


def test_time_without_a_limit_is_not_looked_at():
    Budget(Limits()).check_time()


def test_every_limit_is_in_the_manual():
    manual = Path(__file__).parents[3] / "docs/engine.md"
    text = manual.read_text()
    assert [each.name for each in fields(Limits) if f"| `{each.name}` |" not in text] == []
