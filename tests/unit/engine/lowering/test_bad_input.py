"""What mutated models found: each is refused in one line that names the node."""

import math

import numpy as np
import pytest

from walle_stream.engine.backends.reference import compute
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import MAX_RANK, check_size, infer
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

X = np.zeros((2, 3), np.float32)
TEXT = np.array(["a", "b"], object)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "error"),
    [
        ("Identity", [], {}, LoweringError),
        ("Expand", [X, np.array([2, 2])], {}, ShapeError),
        ("Expand", [X, np.array([2**40, 2**40, 1, 3])], {}, ShapeError),
        ("Expand", [X, np.array([-1])], {}, ShapeError),
        ("Concat", [X, X[0]], {"axis": 1}, ShapeError),
        ("Concat", [X, X[:, 0]], {"axis": 1}, ShapeError),
        ("Split", [X], {"num_outputs": 2**32}, LoweringError),
        ("Split", [X], {"num_outputs": 0}, LoweringError),
        ("Split", [X], {"num_outputs": -1}, LoweringError),
        ("DepthToSpace", [X], {"blocksize": 1}, ShapeError),
        ("SpaceToDepth", [X], {"blocksize": 1}, ShapeError),
        ("Constant", [], {"value": 1}, LoweringError),
        ("Constant", [], {"value_string": 1}, LoweringError),
        ("Constant", [], {"value_strings": (1,)}, LoweringError),
        ("Constant", [], {"value_ints": (1.5,)}, LoweringError),
        ("Constant", [], {"value_float": b"x"}, LoweringError),
        ("Constant", [], {"value_floats": 1.0}, LoweringError),
        ("Neg", [np.ones(2, np.bool_)], {}, DTypeError),
        ("Sign", [np.ones(2, np.bool_)], {}, DTypeError),
        ("Sub", [np.ones(2, np.bool_)] * 2, {}, DTypeError),
        ("Add", [TEXT, TEXT], {}, DTypeError),
        ("Exp", [np.ones(2, np.complex64)], {}, DTypeError),
        ("Cast", [np.ones(2, np.complex64)], {"to": 1}, DTypeError),
        ("ReduceMax", [np.ones(2, np.complex64)], {}, DTypeError),
        ("Floor", [np.ones(2, np.complex64)], {}, DTypeError),
        ("Unsqueeze", [X, np.arange(2, 70)], {}, ShapeError),
    ],
)
def test_a_node_is_refused_in_one_line(operator, inputs, attributes, error):
    names = tuple(f"x{number}" for number in range(len(inputs)))
    graph = Graph(
        "test",
        dict.fromkeys(names),
        {"y": None},
        (Node(operator, names, ("y",), attributes, "it", "", 21),),
    )
    with pytest.raises(error) as caught:
        GraphRunner(graph, {}, _backend()).run(dict(zip(names, inputs, strict=True)))
    assert str(caught.value).startswith(f"node 'it' ({operator}, opset 21): ")
    assert "\n" not in str(caught.value)


def _backend():
    from walle_stream.engine.backends.numpy import NumpyBackend  # noqa: PLC0415

    return NumpyBackend()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
def test_a_region_beyond_all_numbers_is_refused(run_node, value):
    roi = np.array([0, 0, value, value], np.float32)
    sizes = np.array([4, 4])
    given = {"coordinate_transformation_mode": b"tf_crop_and_resize", "version": 19}
    if math.isfinite(value):
        assert run_node("Resize", [X, roi, None, sizes], **given)[0].shape == (4, 4)
        return
    with pytest.raises(EngineError, match="node 'it'"):
        run_node("Resize", [X, roi, None, sizes], **given)


def test_a_branch_that_is_no_graph_is_refused():
    for attributes in ({}, {"then_branch": 3}, {"then_branch": Graph("b", {}, {}, ())}):
        graph = Graph(
            "test",
            {},
            {"y": None},
            (Node("If", ("c",), ("y",), attributes, "it", "", 21),),
            {"c": np.ones((), np.bool_)},
        )
        with pytest.raises(EngineError, match="node 'it'"):
            GraphRunner(graph, {}, _backend()).run({})


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 2**62])
def test_a_step_beyond_an_axis_keeps_one_element(run_node, step):
    start, stop = (0, 3) if step > 0 else (-1, -4)
    kept = run_node(
        "Slice", [X, np.array([start]), np.array([stop]), np.array([1]), np.array([step])]
    )[0]
    assert kept.shape == (2, 1)


def test_a_tensor_has_so_many_axes():
    assert len(check_size((1,) * MAX_RANK)) == MAX_RANK
    with pytest.raises(ShapeError, match="65 axes"):
        check_size((1,) * (MAX_RANK + 1), "it")


def test_text_is_compared_and_chosen_alone():
    text, flag = Tensor((2,), TEXT.dtype), Tensor((2,), np.dtype(np.bool_))
    assert infer(Operator.EQUAL, [text, text], {})[1] == np.bool_
    assert infer(Operator.SELECT, [flag, text, text], {})[1] == TEXT.dtype
    for operator in (Operator.LESS, Operator.ADD, Operator.MINIMUM):
        with pytest.raises(DTypeError):
            infer(operator, [text, text], {})


def test_a_message_is_one_line_of_bounded_length():
    text = str(LoweringError("begin\n" + "x" * 100_000 + "\nend"))
    assert text.startswith("begin x")
    assert len(text) <= 1000
    assert str(ShapeError("a\n  b")) == "a b"


def test_what_a_rule_computes_with_odd_attributes_warns_nobody():
    assert Builder(compute).as_tensor(math.nan, Tensor((1,), np.dtype(np.int64))).dtype == np.int64
