"""Expressions of guests: the engine gives what the simple evaluator gives, or refuses as it does."""

import random
from contextlib import suppress

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import TensorError
from walle_stream.testing.simple_evaluator import SimpleEvaluator
from walle_stream.wire.graph import Constant, Graph, Node

BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "matmul")
UNARY = (
    "neg",
    "abs",
    "exp",
    "tanh",
    "sigmoid",
    "relu",
    "round",
    "softmax",
    "sum",
    "mean",
    "max",
    "argmax",
)
DTYPES = ("float32", "float64", "int32", "int64", "uint8")
CASES = 1_500


def random_constant(rng):
    shape = tuple(rng.choice([1, 2, 3]) for _ in range(rng.randint(0, 3)))
    dtype = rng.choice(DTYPES)
    # whole numbers beyond a byte, too
    high = 4 if dtype == "uint8" else rng.choice([4, 4, 1_000])
    data = np.random.default_rng(rng.randrange(2**32)).uniform(0, high, shape).astype(dtype)
    return Constant(dtype, shape, data.tobytes())


def random_graph(rng):
    nodes, constants = [], {}
    for number in range(rng.randint(2, 12)):
        if number < 2 or rng.random() < 0.2:
            constants[number] = random_constant(rng)
            nodes.append(Node("const", [], {}))
            continue
        kind = rng.random()
        if kind < 0.4:
            nodes.append(Node(rng.choice(BINARY), [rng.randrange(number) for _ in range(2)], {}))
        elif kind < 0.8:
            axis = rng.choice([None, 0, -1, 1])
            parameters = {} if axis is None else {"axis": axis}
            nodes.append(Node(rng.choice(UNARY), [rng.randrange(number)], parameters))
        elif kind < 0.85:
            shape = rng.choice([[-1], [1, -1], [-1, 2], []])
            nodes.append(Node("reshape", [rng.randrange(number)], {"shape": shape}))
        elif kind < 0.9:
            nodes.append(Node("transpose", [rng.randrange(number)], {"axes": None}))
        elif kind < 0.95:
            inputs = [rng.randrange(number) for _ in range(2)]
            nodes.append(Node("concat", inputs, {"axis": rng.choice([0, -1])}))
        else:
            inputs = [rng.randrange(number) for _ in range(2)]
            nodes.append(Node("take", inputs, {"axis": rng.choice([None, 0])}))
    count = rng.randint(1, 3)
    return Graph(nodes, constants, [rng.randrange(len(nodes)) for _ in range(count)])


def answer(evaluator, graph):
    try:
        found = evaluator.evaluate(graph)
    except TensorError:
        return None
    return [np.frombuffer(each.data, each.dtype).reshape(each.shape) for each in found]


def test_expressions_give_what_the_simple_evaluator_gives():
    rng, engine, simple = random.Random(3), EngineEvaluator(NumpyBackend()), SimpleEvaluator()
    agreed = 0
    for number in range(CASES):
        graph = random_graph(rng)
        mine, theirs = answer(engine, graph), answer(simple, graph)
        if theirs is None:
            # the simple one computes what nobody asks for, and so refuses more
            continue
        assert mine is not None, (number, graph)
        agreed += 1
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype, (number, graph)
            assert one.shape == other.shape, (number, graph)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert agreed > CASES // 5


@pytest.mark.parametrize("operator", ["matmul", "add", "concat", "nothing"])
def test_what_does_not_fit_is_refused_with_the_node(operator):
    constants = {
        0: Constant("float32", (2, 3), bytes(24)),
        1: Constant("float32", (4, 5), bytes(80)),
    }
    nodes = [Node("const", [], {}), Node("const", [], {}), Node(operator, [0, 1], {})]
    with pytest.raises(TensorError, match="node 2"):
        EngineEvaluator(NumpyBackend()).evaluate(Graph(nodes, constants, [2]))


def test_a_plan_is_made_once_for_a_structure():
    evaluator = EngineEvaluator(NumpyBackend())
    for value in (1.0, 2.0):
        constants = {0: Constant("float32", (2,), np.array([value, 3], np.float32).tobytes())}
        nodes = [Node("const", [], {}), Node("exp", [0], {})]
        (found,) = evaluator.evaluate(Graph(nodes, constants, [1]))
        assert np.frombuffer(found.data, np.float32)[0] == np.exp(np.float32(value))
    assert len(evaluator._plans) == 1


def joined(graphs):
    """One request of several, node by node in turn, as far as each has them."""
    place, nodes, constants = {}, [], {}
    for at in range(max(len(each.nodes) for each in graphs)):
        for which, graph in enumerate(graphs):
            if at < len(graph.nodes):
                node = graph.nodes[at]
                number = place[which, at] = len(nodes)
                inputs = [place[which, each] for each in node.inputs]
                nodes.append(Node(node.operator, inputs, node.parameters))
                if at in graph.constants:
                    constants[number] = graph.constants[at]
    outputs = [place[which, each] for which, graph in enumerate(graphs) for each in graph.outputs]
    return Graph(nodes, constants, outputs)


def test_requests_together_give_the_bytes_that_each_gives_alone():
    rng, engine = random.Random(8), EngineEvaluator(NumpyBackend())
    good = []
    while len(good) < CASES // 4:
        graph = random_graph(rng)
        with suppress(TensorError):
            good.append((graph, engine.evaluate(graph)))
    for _ in range(CASES // 8):
        some = rng.sample(good, rng.randint(1, 6))
        graphs, expected = [graph for graph, _ in some], [found for _, found in some]
        assert engine.evaluate_all(graphs) == expected
        together = engine.evaluate(joined(graphs))
        assert together == [value for found in expected for value in found]
