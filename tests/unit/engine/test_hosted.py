"""Models as scripts ask for them: positions, casts without loss, and what is refused before a run."""

import numpy as np
import pytest

from walle_stream.engine.graph import Function, Graph, Model, Node, SequenceType, TensorType
from walle_stream.engine.hosted import HostedModel
from walle_stream.engine.models import Module
from walle_stream.errors import DTypeError, EngineError, ModelError

INT64_MAX = np.iinfo(np.int64).max


def kind_of(name):
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def same_as_given(name, *, operator="Identity", **attributes):
    graph = Graph(
        "g",
        {"x": TensorType(kind_of(name), None)},
        {"y": None},
        (Node(operator, ("x",), ("y",), attributes, "it", "", 21),),
    )
    return HostedModel(Module(Model(graph)))


def drawing(*nodes, constants=None, functions=None, version=21):
    made = tuple(
        Node(operator, inputs, (f"y{n}",), attributes, f"n{n}", "", version)
        for n, (operator, inputs, attributes) in enumerate(nodes)
    )
    x = {"x": TensorType(kind_of("float32"), None)}
    return Module(Model(Graph("g", x, {"y0": None}, made, constants or {}), functions or {}))


def test_inputs_are_taken_by_position_and_outputs_given_in_order(dense):
    x = np.ones((2, 3), np.float32)
    y, w2 = HostedModel(Module(dense))(x)
    assert y.shape == (2, 2)
    assert w2.shape == (2, 3)


def test_any_shape_that_is_declared_is_taken_and_planned_once(dense):
    hosted = HostedModel(Module(dense))
    for rows in (1, 2, 1, 2, 1):
        assert hosted(np.ones((rows, 3), np.float32))[0].shape == (rows, 2)
    assert len(hosted.module._runner._first._pieces) == 2


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (np.float64([0.5, -0.0, np.inf, np.nan]), "float32"),
        (np.float32([1 / 3]), "float64"),
        (np.float64([2048.0, -1.5]), "float16"),
        (np.float32([1.5, -(2.0**100)]), "bfloat16"),
        (np.int64([2**24, -3]), "float32"),
        (np.int64([np.iinfo(np.int64).min, 2**53]), "float64"),
        (np.int64([-(2**31), 7]), "int32"),
        (np.int64([0, 65_535]), "uint16"),
        (np.int64([INT64_MAX]), "uint64"),
        (np.uint8([0, 1]), "bool"),
        (np.float32([1.0, 0.0]), "bool"),
        (np.float32([-3.0, 2.0**62]), "int64"),
        (np.float32([]), "int8"),
        (np.uint8([0, 127]), "int8"),
    ],
)
def test_what_loses_no_value_is_cast(given, declared):
    (made,) = same_as_given(declared)(given)
    assert np.array_equal(made.astype(given.dtype), given, equal_nan=given.dtype.kind == "f")


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (np.float64([0.1]), "float32"),
        (np.float64([1e300]), "float32"),
        (np.float32([70_000.0]), "float16"),
        (np.float32([1 + 2.0**-20]), "bfloat16"),
        (np.int64([2**24 + 1]), "float32"),
        (np.int64([INT64_MAX]), "float64"),
        (np.int64([np.iinfo(np.int64).min]), "float16"),
        (np.int64([2**31]), "int32"),
        (np.int64([-1]), "uint64"),
        (np.int32([-1]), "uint8"),
        (np.uint8([2]), "bool"),
        (np.float32([0.5]), "int64"),
        (np.float32([np.nan]), "int64"),
        (np.float32([np.inf]), "bool"),
        (np.float64([2.0**63]), "int64"),
        (np.uint8([128]), "int8"),
    ],
)
def test_what_would_lose_a_value_is_refused_with_the_inputs_name(given, declared):
    with pytest.raises(DTypeError, match=rf"input 'x' is of {declared}, .* this {given.dtype}"):
        same_as_given(declared)(given)


@pytest.mark.parametrize(
    ("declared", "given", "expected"),
    [
        ("bool", np.uint8([1, 0]), np.uint8([1, 0])),
        ("int8", np.int32([-128]), np.int32([-128])),
        ("uint16", np.int32([65_535]), np.int32([65_535])),
        ("uint32", np.int64([2**32 - 1]), np.int64([2**32 - 1])),
        ("float16", np.float32([1.5]), np.float32([1.5])),
        ("bfloat16", np.float32([1.5]), np.float32([1.5])),
    ],
)
def test_outputs_that_scripts_have_no_dtype_for_are_widened(declared, given, expected):
    (made,) = same_as_given(declared)(given)
    assert made.dtype == expected.dtype
    assert np.array_equal(made, expected)


def test_an_output_that_is_no_tensor_is_no_number():
    (made,) = same_as_given("float32", operator="SequenceConstruct")(np.float32([1]))
    assert made.dtype == object


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_inputs_is_refused_with_their_names(dense, count):
    with pytest.raises(EngineError, match=f"^{count} inputs were given: the model has 'x'$"):
        HostedModel(Module(dense))(*[np.ones((1, 3), np.float32)] * count)


def test_another_shape_is_refused_with_the_inputs_name(dense):
    with pytest.raises(EngineError, match=r"input 'x': its shape is \[2, 4\]"):
        HostedModel(Module(dense))(np.ones((2, 4), np.float32))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SequenceType(TensorType(np.dtype(np.float32))), "input 'x' is not a tensor"),
        (TensorType(np.dtype(object)), "input 'x' is of object"),
        (TensorType(np.dtype(np.complex64)), "input 'x' is of complex64"),
    ],
)
def test_inputs_that_no_script_can_give_are_refused_before_a_run(kind, words):
    node = Node("Identity", ("x",), ("y",), {}, "it", "", 21)
    with pytest.raises(DTypeError, match=words):
        HostedModel(Module(Model(Graph("g", {"x": kind}, {"y": None}, (node,)))))


TRAINS = {"r": np.float32(0.5), "yes": np.ones((), np.bool_), "no": np.zeros((), np.bool_)}
BRANCH = Graph(
    "b", {}, {"z": None}, (Node("RandomNormal", (), ("z",), {"shape": (1,)}, "in", "", 21),)
)
CALLED = Function(("x",), ("y",), (), {}, (Node("Bernoulli", ("x",), ("y",), {}, "deep", "", 21),))


@pytest.mark.parametrize(
    "module",
    [
        drawing(("RandomUniformLike", ("x",), {})),
        drawing(("Multinomial", ("x",), {})),
        drawing(("Identity", ("x",), {"then_branch": BRANCH})),
        drawing(("Identity", ("x",), {}), functions={("f", "f", ""): CALLED}),
        drawing(("Dropout", ("x", "r", "yes"), {}), constants=TRAINS),
        drawing(("Dropout", ("x", "r", "x"), {})),
        drawing(("Dropout", ("x",), {}), version=6),
    ],
)
def test_random_numbers_without_a_seed_are_refused_before_a_run(module):
    with pytest.raises(ModelError, match=r"node '.*\): it draws other random numbers in each run"):
        HostedModel(module)


@pytest.mark.parametrize(
    "module",
    [
        drawing(("RandomUniformLike", ("x",), {"seed": 1.0})),
        drawing(("Dropout", ("x",), {})),
        drawing(("Dropout", ("x", "r", "no"), {}), constants=TRAINS),
        drawing(("Dropout", ("x", "r", "yes"), {"seed": 3}), constants=TRAINS),
        drawing(("Dropout", ("x",), {"is_test": 1}), version=6),
        drawing(("Dropout", ("x",), {}), version=7),
    ],
)
def test_a_seed_or_no_training_gives_the_same_each_time(module):
    hosted = HostedModel(module)
    x = np.ones((50,), np.float32)
    assert np.array_equal(hosted(x)[0], hosted(x)[0])
