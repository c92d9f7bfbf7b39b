import numpy as np
import pytest

from walle_stream.engine import Module, Session
from walle_stream.engine.graph import Graph, Model, Node, SequenceType, TensorType
from walle_stream.errors import EngineError, LoweringError, ShapeError

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_gives_what_a_module_gives(dense, backend):
    x = np.ones((4, 3), np.float32)
    session = Session(dense, {"x": (4, 3)}, backend=backend)
    wanted = Module(dense).run({"x": x})
    for name, made in session.run({"x": x}).items():
        np.testing.assert_array_equal(made, wanted[name])


def test_knows_the_shapes_of_its_outputs(dense):
    session = Session(dense, {"x": (4, 3)})
    assert session.inputs == {"x": TensorType(FLOAT, (4, 3))}
    assert session.outputs == {"y": TensorType(FLOAT, (4, 2)), "w2": TensorType(FLOAT, (2, 3))}


def test_is_lowered_when_it_is_made(monkeypatch, dense):
    session = Session(dense, {"x": (4, 3)})
    monkeypatch.setattr("walle_stream.engine.session.trace", None)
    session.run({"x": np.ones((4, 3), np.float32)})


def test_is_resized_and_stays_where_that_is_refused(dense):
    session = Module(dense).session({"x": (4, 3)})
    session.resize({"x": [1, 3]})
    with pytest.raises(ShapeError, match=r"'x' has shape \['rows', 3\], not \[1, 4\]"):
        session.resize({"x": (1, 4)})
    assert session.run({"x": np.ones((1, 3), np.float32)})["y"].shape == (1, 2)


def test_refuses_inputs_of_another_shape(dense):
    session = Session(dense, {"x": (4, 3)})
    with pytest.raises(
        ShapeError, match=r"'x' has shape \[5, 3\], but the session is for \[4, 3\]"
    ):
        session.run({"x": np.ones((5, 3), np.float32)})


def test_control_flow_is_refused_with_its_node(chosen):
    with pytest.raises(LoweringError, match=r"node 'the If'.*control flow"):
        Session(chosen, {"flag": (), "x": (2,)})


def test_a_shape_that_a_value_decides_is_refused_with_the_value(reshaped):
    with pytest.raises(LoweringError, match=r"node 'the Reshape'.*elements of 'shape'.*Module"):
        Session(reshaped, {"x": (2,), "shape": (1,)})


def test_a_shape_that_only_a_run_gives_is_refused():
    nodes = (Node("NonZero", ("x",), ("y",), version=21),)
    graph = Graph("g", {"x": TensorType(FLOAT, (3,))}, {"y": None}, nodes)
    with pytest.raises(LoweringError, match="session cannot run it"):
        Session(Model(graph))


def test_shapes_that_are_said_in_numbers_may_be_left_out():
    nodes = (Node("Neg", ("x",), ("y",), version=21),)
    graph = Graph("g", {"x": TensorType(FLOAT, (2,))}, {"y": None}, nodes)
    assert Session(Model(graph)).run({"x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "'x' has shape .* whole numbers"),
        ({"x": (-1, 3)}, "whole numbers"),
        ({"x": (True, 3)}, "whole numbers"),
        ({"x": (1, 3), "z": (1,)}, "no input 'z': it has 'x'"),
        ({"x": (1 << 40, 3)}, "elements"),
    ],
)
def test_wrong_shapes_are_refused(dense, shapes, message):
    with pytest.raises(EngineError, match=message):
        Session(dense, shapes)


@pytest.mark.parametrize("sizes", [np.array([2, 3]), (np.int64(2), 3), [2, 3]])
def test_sizes_may_be_numbers_of_numpy(dense, sizes):
    assert Session(dense, {"x": sizes}).inputs["x"].shape == (2, 3)


@pytest.mark.parametrize("shapes", [5, ["x"], "x", {"x": 5}, {"x": "ab"}, {"x": (True, 3)}])
def test_what_is_no_shape_is_refused(dense, shapes):
    with pytest.raises(EngineError, match=r"shapes must be given by name|of whole numbers"):
        Session(dense, shapes)


def test_inputs_that_are_no_tensors_are_refused():
    graph = Graph("g", {"x": SequenceType(TensorType(FLOAT, None))}, {"x": None}, ())
    with pytest.raises(EngineError, match="'x' is not a tensor"):
        Session(Model(graph))
    with pytest.raises(EngineError, match="'x' has no type"):
        Session(Model(Graph("g", {"x": None}, {"x": None}, ())), {"x": (1,)})


def test_a_file_is_loaded(dense_file):
    session = Session(dense_file, {"x": (1, 3)})
    assert session.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[6, 9]]


def test_too_little_memory_is_one_line(monkeypatch, dense):
    session = Session(dense, {"x": (4, 3)})

    def run(*_given):
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(session._ready.piece, "run", run)
    with pytest.raises(EngineError, match="graph 'dense': there is not enough memory"):
        session.run({"x": np.ones((4, 3), np.float32)})
