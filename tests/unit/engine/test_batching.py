"""Batched models: a row's result is the same whoever else asks, or the model is refused."""

import random

import numpy as np
import pytest

from walle_stream.engine.batching import BatchedModel
from walle_stream.engine.graph import Graph, Model, Node, SequenceType, TensorType
from walle_stream.engine.hosted import HostedModel
from walle_stream.engine.models import Module
from walle_stream.errors import EngineError, ModelError

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)
WEIGHTS = np.random.default_rng(1).normal(size=(37, 19)).astype(FLOAT)


def node(operator, inputs, outputs, **attributes):
    return Node(operator, inputs, outputs, attributes, f"the {operator}", "", 21)


def hosted(*nodes, inputs=None, outputs=("y",), constants=None):
    given = inputs or {"x": TensorType(FLOAT, ("n", 37))}
    named = dict.fromkeys(outputs) if isinstance(outputs, tuple) else outputs
    return HostedModel(Module(Model(Graph("g", given, named, nodes, constants or {}))))


def dense(batch=16):
    model = hosted(
        node("MatMul", ("x", "w"), ("xw",)),
        node("Softmax", ("xw",), ("y",), axis=1),
        node("ReduceSum", ("xw", "axes"), ("total",), keepdims=0),
        outputs=("y", "total"),
        constants={"w": WEIGHTS, "axes": np.array([1])},
    )
    return BatchedModel(model, batch, "spec.models.rank")


def of_axis_0(operator):
    reduced = node(operator, ("x", "axes"), ("r",), keepdims=1)
    axes = {"axes": np.array([0])}
    return hosted(reduced, node("Sub", ("x", "r"), ("y",)), constants=axes)


def same(one, other):
    return [each.tobytes() for each in one] == [each.tobytes() for each in other]


def test_a_request_gets_the_same_alone_and_among_any_others():
    rng, numbers = random.Random(5), np.random.default_rng(5)
    model = dense()
    for _ in range(20):
        requests = [
            [numbers.normal(size=(rng.choice([0, 1, 1, 2, 15, 16, 17, 40]), 37)).astype(FLOAT)]
            for _ in range(rng.randint(1, 12))
        ]
        together = model.run_many(requests)
        for given, found in zip(requests, together, strict=True):
            assert same(found, model(*given))
            assert [len(each) for each in found] == [len(given[0])] * 2
            for at in range(len(given[0])):
                one = model(given[0][at : at + 1])
                assert same([each[at : at + 1] for each in found], one)


def test_where_blocks_show_the_rows_are_run_a_few_at_a_time():
    rows = set()

    class Blocks:
        module = hosted(node("Identity", ("x",), ("y",))).module

        def __call__(self, x):
            rows.add(len(x))
            return (x + (np.arange(len(x)) // 12).astype(FLOAT)[:, None],)

    model = BatchedModel(Blocks(), 16, "spec.models.rank")
    given = np.random.default_rng(2).normal(size=(40, 37)).astype(FLOAT)
    assert same(model(given), (given,))
    assert rows == {16, 8}


def test_all_evaluations_have_one_shape():
    model = dense(batch=8)
    for rows in (1, 3, 8, 9, 30):
        model(np.ones((rows, 37), FLOAT))
    assert len(model.module._runner._first._pieces) == 1


def test_requests_of_different_rows_and_dtypes_are_kept_apart():
    kinds = {"x": TensorType(FLOAT, ("n", None)), "k": TensorType(INT, ("n",))}
    model = BatchedModel(
        hosted(
            node("ReduceMax", ("x", "axes"), ("top",), keepdims=0),
            node("Cast", ("k",), ("number",), to=1),
            node("Add", ("top", "number"), ("y",)),
            inputs=kinds,
            constants={"axes": np.array([1])},
        ),
        4,
        "m",
    )
    requests = [
        [np.ones((n, width), dtype), np.full(n, n)]
        for n, width, dtype in ((1, 2, FLOAT), (2, 3, FLOAT), (3, 2, "float64"), (2, 2, FLOAT))
    ]
    assert [y.tolist() for (y,) in model.run_many(requests)] == [
        [2.0], [3.0] * 2, [4.0] * 3, [3.0] * 2,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        of_axis_0("ReduceMean"),
        of_axis_0("ReduceMax"),
        hosted(node("Softmax", ("x",), ("y",), axis=0)),
        hosted(node("CumSum", ("x", "axis"), ("y",)), constants={"axis": np.array(0)}),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_a_model_that_mixes_rows_is_refused(model, rows):
    batched = BatchedModel(model, 8, "spec.models.rank")
    x = np.random.default_rng(2).normal(size=(rows, 37)).astype(FLOAT)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"^spec\.models\.rank: .*other rows.*leave `batch`"):
            batched(x)


def test_a_shape_that_is_refused_stays_so_and_others_are_not(monkeypatch):
    kinds = {"x": TensorType(FLOAT, ("n", None))}
    model = hosted(
        node("CumSum", ("x", "axis"), ("y",)), inputs=kinds, constants={"axis": np.array(0)}
    )
    batched = BatchedModel(model, 16, "m")
    nothing, x = np.zeros((2, 0), FLOAT), np.ones((2, 3), FLOAT)
    for _ in range(2):
        assert batched(nothing)[0].shape == (2, 0)
        with pytest.raises(ModelError, match="other rows"):
            batched(x)
    monkeypatch.setattr(batched, "_outputs", None)
    with pytest.raises(ModelError, match="other rows"):  # without another try
        batched(x)


@pytest.mark.parametrize("batch", [16, 48])
def test_rows_of_any_small_net_are_the_same_in_every_place(batch):
    numbers = np.random.default_rng(batch)
    for width in (3, 7, 20, 300):
        weights = {"w": numbers.normal(size=(4, width)).astype(FLOAT)}
        kinds = {"x": TensorType(FLOAT, ("n", 4))}
        nodes = node("MatMul", ("x", "w"), ("a",)), node("Softmax", ("a",), ("y",), axis=1)
        model = BatchedModel(hosted(*nodes, inputs=kinds, constants=weights), batch, "m")
        x = numbers.normal(size=(3 * batch + 5, 4)).astype(FLOAT)
        (together,) = model(x)
        assert all(same([together[n : n + 1]], model(x[n : n + 1])) for n in range(len(x)))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (hosted(node("Transpose", ("x",), ("y",), perm=(1, 0))), r"\[37, 8\]"),
        (hosted(node("ReduceSum", ("x",), ("y",), keepdims=0)), r"\[\]"),
    ],
)
def test_an_output_without_rows_is_refused(model, shape):
    with pytest.raises(ModelError, match=f"output 'y' of 8 rows has the shape {shape}"):
        BatchedModel(model, 8, "spec.models.rank")(np.ones((3, 37), FLOAT))


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ({}, ("y",), "a model without inputs has no rows"),
        ({"x": TensorType(FLOAT, ())}, ("y",), "input 'x' has no dimensions, hence no rows"),
        ({"x": TensorType(FLOAT, (3, 2))}, ("y",), "input 'x' always has 3 rows"),
        (None, {"y": TensorType(FLOAT, (1, 37))}, "output 'y' always has 1 rows"),
        (None, {"y": SequenceType(TensorType(FLOAT))}, "output 'y' is not a tensor"),
    ],
)
def test_what_a_model_declares_is_looked_at_before_a_run(inputs, outputs, words):
    given = {"x": TensorType(FLOAT, ("n", 37))} if inputs is None else inputs
    graph = Graph("g", given, outputs if isinstance(outputs, dict) else {"y": None}, ())
    with pytest.raises(ModelError, match=f"spec.models.rank: .*{words}: leave `batch` out"):
        BatchedModel(HostedModel(Module(Model(graph))), 8, "spec.models.rank")


def test_a_model_made_for_that_many_rows_is_taken():
    fixed = {"x": TensorType(FLOAT, (8, 2))}
    model = BatchedModel(hosted(node("Neg", ("x",), ("y",)), inputs=fixed), 8, "m")
    assert model(np.ones((3, 2), FLOAT))[0].tolist() == [[-1.0, -1.0]] * 3


@pytest.mark.parametrize("given", [[np.float32(1)], [np.ones(2), np.ones(3)], []])
def test_inputs_without_common_rows_are_refused(given):
    with pytest.raises(EngineError, match="the same number of rows"):
        dense()(*given)


def test_indices_are_tried_only_as_far_as_they_are_taken():
    table = np.arange(6, dtype=FLOAT).reshape(3, 2)
    model = hosted(
        node("Gather", ("t", "k"), ("y",)),
        inputs={"k": TensorType(INT, ("n",))},
        constants={"t": table},
    )
    # 2 is the last one
    assert BatchedModel(model, 4, "m")(np.array([2, 0]))[0].tolist() == [[4, 5], [0, 1]]
