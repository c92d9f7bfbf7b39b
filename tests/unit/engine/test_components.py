"""Requests are cut into what has nothing to do with each other, and answered as if alone."""

import numpy as np
import pytest

from walle_stream.engine.backends.numpy import NumpyBackend
from walle_stream.engine.components import components
from walle_stream.engine.expressions import EngineEvaluator
from walle_stream.errors import TensorError
from walle_stream.wire.graph import Constant, Graph, Node


def constant(*values):
    data = np.array(values, np.float32)
    return Constant("float32", data.shape, data.tobytes())


def two_by_two(first=1.0):
    """Nodes 2 and 3 of 0, node 5 of 4: two parts, of three outputs."""
    nodes = [Node("const", [], {}), Node("const", [], {}), Node("exp", [0], {})]
    nodes += [Node("add", [2, 0], {}), Node("const", [], {}), Node("exp", [4], {})]
    constants = {0: constant(first, 2.0), 1: constant(9.0), 4: constant(5.0, 6.0)}
    return Graph(nodes, constants, [5, 3, 2])


class Rows:
    """A model that takes many: doubles, and keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def run_many(self, requests):
        self.asked.append(len(requests))
        if any(each[0].size == 3 for each in requests):
            raise ValueError("three")
        return [(each[0] * 2, each[0] + 1) for each in requests]


def test_parts_are_numbered_from_0_and_what_nobody_asks_for_is_left_out():
    one, other = components(two_by_two())
    assert (list(one.numbers), list(one.outputs)) == ([0, 2, 3], [1, 2])
    assert [list(each.inputs) for each in one.nodes] == [[], [0], [1, 0]]
    assert (list(other.numbers), list(other.outputs)) == ([4, 5], [1])


def test_one_structure_has_one_plan_whatever_is_asked_for_beside_it():
    evaluator = EngineEvaluator(NumpyBackend())
    evaluator.evaluate(two_by_two())
    evaluator.evaluate(
        Graph([Node("const", [], {}), Node("exp", [0], {})], {0: constant(1, 2)}, [1])
    )
    evaluator.evaluate_all([two_by_two(float(k)) for k in range(5)])
    assert len(evaluator._plans) == 2


def test_models_without_inputs_run_once_for_a_request():
    calls = []
    evaluator = EngineEvaluator(NumpyBackend(), {"m": lambda: calls.append(1) or np.ones(1)})
    nodes = [Node("model", [], {"name": "m", "output": 0}) for _ in range(2)]
    evaluator.evaluate(Graph(nodes, {}, [0, 1]))
    assert calls == [1]


def of_model(*values, output=0, name="m"):
    nodes = [Node("const", [], {}), Node("abs", [0], {})]
    nodes += [Node("model", [1], {"name": name, "output": output}), Node("neg", [2], {})]
    return Graph(nodes, {0: constant(*values)}, [3])


def test_a_model_that_takes_many_sees_all_requests_of_a_crossing_once():
    rows = Rows()
    evaluator = EngineEvaluator(NumpyBackend(), {"m": rows})
    graphs = [of_model(-1.0), of_model(2.0, 4.0), of_model(1.0, output=1)]
    found = evaluator.evaluate_all(graphs)
    assert rows.asked == [3]
    assert [np.frombuffer(each.data, np.float32).tolist() for (each,) in found] == [
        [-2.0], [-4.0, -8.0], [-2.0],
    ]  # fmt: skip
    assert [evaluator.evaluate(each) for each in graphs] == found


def test_models_that_read_models_come_behind_them_together():
    rows = Rows()
    deep = Graph(
        [Node("const", [], {}), Node("model", [0], {"name": "m", "output": 0}),
         Node("model", [1], {"name": "m", "output": 0})], {0: constant(1)}, [2],
    )  # fmt: skip
    EngineEvaluator(NumpyBackend(), {"m": rows}).evaluate_all([deep, of_model(1.0), deep])
    assert rows.asked == [3, 2]


def test_the_one_that_fails_is_named():
    evaluator = EngineEvaluator(NumpyBackend(), {"m": Rows()})
    with pytest.raises(TensorError, match=r"node 2: model 'm' of shapes \(3,\): ValueError: three"):
        evaluator.evaluate_all([of_model(1.0), of_model(1.0, 2.0, 3.0)])


def test_outputs_of_requests_before_are_given_as_they_are():
    first = Graph([Node("const", [], {}), Node("exp", [0], {})], {0: constant(1.0)}, [1])
    earlier = Node("earlier", [], {"back": 1, "output": 0})
    second = Graph([earlier, Node("neg", [0], {})], {}, [1, 0], {0: (0, 0)})
    evaluator = EngineEvaluator(NumpyBackend())
    (value,), found = evaluator.evaluate_all([first, second])
    alone = evaluator.evaluate(Graph([Node("const", [], {}), second.nodes[1]], {0: value}, [1, 0]))
    assert found == alone


def test_each_request_has_the_bound_of_work_for_itself_and_memory_is_shared(monkeypatch):
    monkeypatch.setattr("walle_stream.engine.expressions.WORK_MAX_ELEMENTS", 1 << 21)
    monkeypatch.setattr("walle_stream.engine.expressions.CROSSING_MAX_BYTES", 1 << 22)
    nodes = [Node("const", [], {}), Node("const", [], {}), Node("add", [0, 1], {})]
    nodes += [Node("sum", [2], {"axis": None}), Node("exp", [2], {}), Node("sum", [4], {})]
    tall, wide = np.zeros((500, 1), np.float32), np.zeros((1, 800), np.float32)
    constants = {n: Constant("float32", x.shape, x.tobytes()) for n, x in enumerate((tall, wide))}
    evaluator = EngineEvaluator(NumpyBackend())
    graph = Graph(nodes[:4], constants, [3])
    evaluator.evaluate_all([graph] * 4)  # 800,000 elements each, of 2 million
    with pytest.raises(TensorError, match="the requests together are too large"):
        evaluator.evaluate_all([Graph(nodes[:3], constants, [2])] * 4)


def test_what_is_computed_together_is_bounded(monkeypatch):
    monkeypatch.setattr("walle_stream.engine.expressions.CROSSING_WORK_MAX_ELEMENTS", 20)
    evaluator = EngineEvaluator(NumpyBackend())
    evaluator.evaluate_all([two_by_two()] * 3)  # 6 elements each
    with pytest.raises(TensorError, match="the requests together are too large"):
        evaluator.evaluate_all([two_by_two()] * 4)
