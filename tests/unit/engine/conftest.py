"""Small models: as graphs, and as files where onnx is installed."""

from contextlib import contextmanager

import numpy as np
import pytest

from walle_stream.engine.backends.running import Arenas
from walle_stream.engine.graph import Graph, Model, Node, TensorType

FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Another plan used the memory before: no run may find anything in its arena."""
    lent = Arenas.lent

    @contextmanager
    def poisoning(self, plan):
        with lent(self, plan) as arena:
            if isinstance(arena.memory, np.ndarray):
                arena.memory.fill(0xA5)
            yield arena

    monkeypatch.setattr(Arenas, "lent", poisoning)


def node(operator, inputs, outputs, **attributes):
    return Node(operator, inputs, outputs, attributes, f"the {operator}", "", 21)


@pytest.fixture
def dense():
    """``y = relu(x @ w + 1)``, and its constant; any number of rows."""
    graph = Graph(
        "dense",
        {"x": TensorType(FLOAT, ("rows", 3))},
        {"y": TensorType(FLOAT, ("rows", 2)), "w2": None},
        (
            node("MatMul", ("x", "w"), ("xw",)),
            node("Add", ("xw", "one"), ("shifted",)),
            node("Relu", ("shifted",), ("y",)),
            node("Transpose", ("w",), ("w2",), perm=(1, 0)),
        ),
        {"w": np.arange(6, dtype=FLOAT).reshape(3, 2) - 2, "one": np.ones(2, FLOAT)},
    )
    return Model(graph)


@pytest.fixture
def chosen():
    """``y = -x`` where ``flag``, else ``abs(x)``: control flow, decided by a value."""

    def branch(operator):
        return Graph("branch", {}, {"b": None}, (node(operator, ("x",), ("b",)),))

    graph = Graph(
        "chosen",
        {"flag": TensorType(np.dtype(np.bool_), ()), "x": TensorType(FLOAT, ("n",))},
        {"y": None},
        (node("If", ("flag",), ("y",), then_branch=branch("Neg"), else_branch=branch("Abs")),),
    )
    return Model(graph)


@pytest.fixture
def reshaped():
    """``y`` is ``x`` of the shape that another input says."""
    graph = Graph(
        "reshaped",
        {"x": TensorType(FLOAT, ("n",)), "shape": TensorType(np.dtype(np.int64), ("axes",))},
        {"y": None},
        (node("Reshape", ("x", "shape"), ("y",)),),
    )
    return Model(graph)


@pytest.fixture
def dense_file(tmp_path):
    """``y = relu(x @ w)`` with rows of any number, as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.arange(6, dtype=FLOAT).reshape(3, 2), "w")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
            helper.make_node("Relu", ["xw"], ["y"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", kind, ["rows", 3])],
        [helper.make_tensor_value_info("y", kind, ["rows", 2])],
        [weights],
    )
    path = tmp_path / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path
