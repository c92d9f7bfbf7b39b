"""Maps: scores by label as outputs, features by name as inputs."""

import numpy as np
import pytest

from walle_stream.engine import Module
from walle_stream.engine.batching import BatchedModel
from walle_stream.engine.graph import Graph, MapType, Model, Node, SequenceType, TensorType
from walle_stream.engine.hosted import HostedModel
from walle_stream.errors import DTypeError, EngineError, LoweringError, ShapeError

FLOAT, INT, TEXT = np.dtype(np.float32), np.dtype(np.int64), np.dtype(object)
SCORES = np.arange(6, dtype=FLOAT).reshape(3, 2) / 10
NUMBERS, NAMES = {"classlabels_int64s": (7, -1)}, {"classlabels_strings": (b"no", b"yes")}


def node(operator, inputs, outputs, domain="", **attributes):
    return Node(operator, inputs, outputs, attributes, "it", domain, 1 if domain else 21)


def zipped(backend="numpy", **labels):
    nodes = (
        node("Neg", ("x",), ("minus",)),
        node("ZipMap", ("minus",), ("scores",), "ai.onnx.ml", **labels),
    )
    key = TEXT if "classlabels_strings" in labels else INT
    outputs = {"minus": None, "scores": SequenceType(MapType(key, TensorType(FLOAT)))}
    graph = Graph("g", {"x": TensorType(FLOAT, ("n", 2))}, outputs, nodes)
    return Module(Model(graph), backend=backend)


@pytest.mark.parametrize("backend", ["numpy", "reference"])
@pytest.mark.parametrize(("labels", "keys"), [(NUMBERS, [7, -1]), (NAMES, ["no", "yes"])])
def test_scores_are_a_dict_for_each_row(backend, labels, keys):
    module = zipped(backend, **labels)
    for count in (3, 1, 0, 3):
        x = SCORES[:count]
        want = [dict(zip(keys, row, strict=True)) for row in (-x).tolist()]
        for made in (module.run({"x": x}), module.session({"x": x.shape}).run({"x": x})):
            assert made["scores"] == want
            assert made["minus"].tolist() == (-x).tolist()
    assert all(type(score) is float for score in module.run({"x": SCORES})["scores"][0].values())


def test_scores_are_rows_of_an_array_where_maps_are_not_wanted():
    module = zipped(**NAMES)
    scores = module.run({"x": SCORES}, ["scores"], maps=False)["scores"]
    np.testing.assert_array_equal(scores, -SCORES)
    scores[:] = 5
    assert module.run({"x": SCORES})["scores"][0] == {"no": -0.0, "yes": pytest.approx(-0.1)}
    for model in (HostedModel(module), BatchedModel(HostedModel(module), 16, "m")):
        np.testing.assert_array_equal(model(SCORES)[1], -SCORES)


def test_a_branch_may_give_maps():
    zips = [node("ZipMap", ("x",), ("z",), "ai.onnx.ml", **labels) for labels in (NUMBERS, NAMES)]
    branches = [Graph("branch", {}, {"z": None}, (each,)) for each in zips]
    choice = node("If", ("flag",), ("y",), then_branch=branches[0], else_branch=branches[1])
    inputs = {"x": TensorType(FLOAT, (1, 2)), "flag": TensorType(np.dtype(np.bool_), ())}
    module = Module(Model(Graph("g", inputs, {"y": None}, (choice,))))
    for flag, key in ((True, 7), (False, "no")):
        made = module.run({"x": SCORES[:1], "flag": np.array(flag)})
        assert next(iter(made["y"][0])) == key


@pytest.mark.parametrize(
    ("error", "x", "labels"),
    [
        (ShapeError, SCORES, {}),
        (ShapeError, SCORES, {"classlabels_int64s": (1, 2, 3)}),
        (ShapeError, SCORES.reshape(3, 2, 1), NUMBERS),
        (DTypeError, SCORES.astype(np.float64), NUMBERS),
        (LoweringError, SCORES, {**NUMBERS, **NAMES}),
    ],
)
def test_scores_that_do_not_fit_their_labels_are_refused(run_node, error, x, labels):
    with pytest.raises(error, match="ZipMap"):
        run_node("ZipMap", [x], domain="ai.onnx.ml", **labels)


def vectorized(key, value, given, **vocabulary):
    made = node("DictVectorizer", ("x",), ("y",), "ai.onnx.ml", **vocabulary)
    inputs = {"x": MapType(key, TensorType(value))}
    return Module(Model(Graph("g", inputs, {"y": None}, (made,)))).run({"x": given})["y"]


@pytest.mark.parametrize(
    ("key", "value", "words", "given", "want"),
    [
        (TEXT, FLOAT, (b"a", b"b"), {"b": 2, "z": 9, "y": 8, "a": 1.5}, [1.5, 2]),
        (TEXT, FLOAT, (b"a", b"b"), {"b": 2}, [0, 2]),
        (TEXT, FLOAT, (b"a", b"b"), {}, [0, 0]),
        (TEXT, INT, (b"a", b"b"), {"a": 3}, [3, 0]),
        (INT, FLOAT, (4, 2, 9), {2: 0.5, 3: 1.0}, [0, 0.5, 0]),
        (INT, TEXT, (4, 2), {2: "two"}, ["", "two"]),
        (INT, TEXT, (4, 2), {}, ["", ""]),
    ],
)
def test_features_by_name_are_a_row(key, value, words, given, want):
    vocabulary = "string_vocabulary" if key == TEXT else "int64_vocabulary"
    made = vectorized(key, value, given, **{vocabulary: words})
    assert (made.dtype, made.tolist()) == (value, [want])


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (MapType(TEXT, TensorType(FLOAT)), SCORES),
        (MapType(TEXT, TensorType(FLOAT)), {"a": "text"}),
        (MapType(TEXT, TensorType(FLOAT)), {"a": [1.0, 2.0]}),
        (MapType(INT, TensorType(FLOAT)), {0.5: 1.0}),
        (MapType(INT, SequenceType(TensorType(FLOAT))), {1: [1.0]}),
    ],
)
def test_a_map_that_does_not_fit_is_refused_with_its_name(kind, given):
    made = node("DictVectorizer", ("x",), ("y",), "ai.onnx.ml", int64_vocabulary=(1,))
    module = Module(Model(Graph("g", {"x": kind}, {"y": None}, (made,))))
    with pytest.raises(EngineError, match="input 'x'"):
        module.run({"x": given})


def test_operators_of_tensors_refuse_maps_and_the_other_way_round():
    def run(operator, kind, value, domain=""):
        graph = Graph("g", {"x": kind}, {"y": None}, (node(operator, ("x",), ("y",), domain),))
        Module(Model(graph)).run({"x": value})

    with pytest.raises(LoweringError, match="input 0 is a map; a tensor is expected"):
        run("Neg", MapType(INT, TensorType(FLOAT)), {1: 1.0})
    with pytest.raises(LoweringError, match="input 0 is not a map"):
        run("DictVectorizer", TensorType(FLOAT, (2,)), SCORES[0], "ai.onnx.ml")
    body = Graph("b", dict.fromkeys("nct"), {"t": None}, ())
    loop = Node("Loop", ("x",), ("y",), {"body": body}, "it", "", 21)
    looped = Graph("g", {"x": MapType(INT, TensorType(FLOAT))}, {"y": None}, (loop,))
    with pytest.raises(LoweringError, match="not a sequence, a map"):
        Module(Model(looped)).run({"x": {1: 1.0}})
