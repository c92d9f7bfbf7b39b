"""The specification of each stage: what is wrong is found."""

from dataclasses import replace

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.graph import Graph, Model, Node
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.planning.elision import Alias
from walle_stream.engine.program import Program, Tensor
from walle_stream.engine.region import View
from walle_stream.errors import SpecError
from walle_stream.testing.stages import verify_model, verify_plan


def node(inputs, outputs, version=13, **attributes):
    return Node("Add", inputs, outputs, attributes, "n", version=version)


def model(*nodes, outputs=("y",)):
    return Model(Graph("g", {"x": None}, dict.fromkeys(outputs), nodes, {"c": np.ones(1)}))


def test_a_graph_in_order_is_right():
    inner = Graph("inner", {}, {"z": None}, (node(("x", "t"), ("z",)),))
    verify_model(model(node(("x", "c"), ("t",)), node(("t", ""), ("y",), then=inner)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (model(node(("t", "c"), ("y",)), node(("x", "c"), ("t",))), "reads 't' before it is made"),
        (model(node(("x", "c"), ("y",)), node(("x", "c"), ("y",))), "makes 'y' again"),
        (model(node(("x", "c"), ("y",), version=0)), "has no version"),
        (model(outputs=("y",)), "nothing makes the output 'y'"),
        (
            model(node(("x", "c"), ("y",), body=Graph("b", {}, {"q": None}, ()))),
            "graph 'b': nothing makes the output 'q'",
        ),
    ],
)
def test_a_wrong_graph_is_found(wrong, message):
    with pytest.raises(SpecError, match=message):
        verify_model(wrong)


@pytest.fixture
def plan():
    builder = Builder(compute)
    x = Tensor((64, 32), np.dtype(np.float32), name="x")
    turned = builder.unary(Operator.TANH, moves.transpose(builder, x, (1, 0)))
    weights = builder.constant(np.ones((64, 16), np.float32))
    output = builder.binary(Operator.ADD, builder.matmul(turned, weights), 1.5)
    return NumpyBackend().plan(Program([x], [output], builder.steps))


def verified(plan, **changed):
    parts = {"elision": plan.elision, "loops": plan.loops, "placement": plan.placement} | changed
    verify_plan(plan.program, **parts)


def test_a_plan_is_right(plan):
    verified(plan)


def test_loops_in_another_order_are_found(plan):
    with pytest.raises(SpecError, match="do not run the steps"):
        verified(plan, loops=plan.loops[::-1])


def test_another_view_is_found(plan):
    turned = next(
        each for each in plan.elision.aliases if each.shape == (32, 64) and each.name == ""
    )
    seen = plan.elision.aliases[turned]
    for view, message in [
        (View(0, (64, 1)), "is not what its raster"),
        (View(1, (1, 32)), "is seen at 1 .. 2048"),
    ]:
        changed = {**plan.elision.aliases, turned: Alias(seen.root, view)}
        with pytest.raises(SpecError, match=message):
            verified(plan, elision=replace(plan.elision, aliases=changed))


def test_memory_that_is_too_small_or_shared_is_found(plan):
    first, *others = {id(each): each for each in plan.placement.buffers.values()}.values()
    nbytes, last = first.nbytes, first.last
    for name, wrong, message in [
        ("nbytes", 4, "has no memory, or too little"),
        ("last", -1, "lives longer than its memory"),
        ("offset", 8, "memory of"),
    ]:
        kept = getattr(first, name)
        setattr(first, name, wrong)
        with pytest.raises(SpecError, match=message):
            verified(plan)
        setattr(first, name, kept)
    assert (first.nbytes, first.last) == (nbytes, last)
    for each in (first, *others):
        each.offset, each.last = 0, 99
    with pytest.raises(SpecError, match="share memory"):
        verified(plan)
