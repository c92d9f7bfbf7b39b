"""Small models of features that ONNX's cases rarely use: control flow, functions, external data."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from walle_stream.testing.onnx.cases import Case

_FLOAT, _INT, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def small_cases() -> list[Case]:
    """Return the small models as cases with inputs and without outputs."""
    true = np.ones((), np.bool_)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = {
        "loop": (_loop(), (np.array(3), true, x)),
        "while": (_while(), (x,)),
        "nested": (_nested(), (true, x)),
        "scan": (_scan(), (np.zeros(3, np.float32), x)),
        "functions": (_functions(), (x,)),
        "late shapes": (_late_shapes(), (x, np.array([3, 2]))),
        "sequence": (_sequence(), (x,)),
        "external": (_external(), (x,)),
        "sparse": (_sparse(), (x,)),
        "maps": (_maps(), (x,)),
        "text": (_text(), (np.array(["a b", "c"], object),)),
    }
    return [
        Case("small", name, model.SerializeToString(), ((inputs, ()),), 1e-3, 1e-6)
        for name, (model, inputs) in made.items()
    ]


def fill_folder(folder: Path) -> None:
    """Write the files of the model with external data, and files that it must not read.

    Args:
        folder: Folder of the model; a secret file is written beside it.
    """
    (folder / "weights").write_bytes(np.ones(6, np.float32).tobytes())
    (folder.parent / "secret").write_bytes(bytes(64))
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder.parent / "secret")
    os.mkfifo(folder / "pipe")


def _value(name: str, kind: int, shape: Sequence[int | str] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], **more: Any
) -> ModelProto:
    constants = more.pop("constants", [])
    sparse = more.pop("sparse", [])
    graph = helper.make_graph(
        nodes, "small", inputs, outputs, initializer=constants, sparse_initializer=sparse
    )
    versions = {"": 21, "local": 1, "ai.onnx.ml": 1}
    imports = [helper.make_opsetid(*version) for version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, **more)


def _body(more: Sequence[NodeProto] = (), rows: bool = True) -> GraphProto:
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Add", ["state", "state"], ["next"]),
        *more,
    ]
    outputs = [_value("go_on", _BOOL, []), _value("next", _FLOAT, None)]
    outputs += [_value("next", _FLOAT, None)] if rows else []
    inputs = [_value("n", _INT, []), _value("go", _BOOL, []), _value("state", _FLOAT, None)]
    return helper.make_graph(nodes, "body", inputs, outputs)


def _loop() -> ModelProto:
    return _model(
        [helper.make_node("Loop", ["count", "go", "x"], ["last", "all"], "loop", body=_body())],
        [_value("count", _INT, []), _value("go", _BOOL, []), _value("x", _FLOAT, ["N", 3])],
        [_value("last", _FLOAT, ["N", 3]), _value("all", _FLOAT, None)],
    )


def _while() -> ModelProto:
    less = [
        helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "limit"], ["goes"]),
    ]
    body = _body(less, rows=False)
    body.output[0].name = "goes"
    return _model(
        [helper.make_node("Loop", ["", "", "x"], ["y"], "while", body=body)],
        [_value("x", _FLOAT, [2, 3])],
        [_value("y", _FLOAT, [2, 3])],
        constants=[numpy_helper.from_array(np.array(1000, np.float32), "limit")],
    )


def _nested() -> ModelProto:
    three = numpy_helper.from_array(np.array(3), "three")
    inner = helper.make_graph(
        [helper.make_node("Loop", ["three", "", "x"], ["l", "a"], "inner", body=_body())],
        "then", [], [_value("l", _FLOAT, None)], initializer=[three],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])], "else", [], [_value("n", _FLOAT, None)]
    )
    return _model(
        [helper.make_node("If", ["c"], ["y"], "if", then_branch=inner, else_branch=other)],
        [_value("c", _BOOL, []), _value("x", _FLOAT, ["N", "M"])],
        [_value("y", _FLOAT, ["N", "M"])],
    )


def _scan() -> ModelProto:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Exp", ["t"], ["r"])],
        "body",
        [_value("s", _FLOAT, [3]), _value("row", _FLOAT, [3])],
        [_value("t", _FLOAT, [3]), _value("r", _FLOAT, [3])],
    )
    node = helper.make_node("Scan", ["s0", "x"], ["s1", "y"], "scan", body=body, num_scan_inputs=1)
    return _model(
        [node],
        [_value("s0", _FLOAT, [3]), _value("x", _FLOAT, ["N", 3])],
        [_value("s1", _FLOAT, [3]), _value("y", _FLOAT, ["N", 3])],
    )


def _functions() -> ModelProto:
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    attribute = leaky.attribute.add(name="alpha", type=1)
    attribute.ref_attr_name = "alpha"
    inner = helper.make_function("local", "Inner", ["a"], ["b"], [leaky], opset, ["alpha"])
    twice = [
        helper.make_node("Inner", ["a"], ["c"], domain="local", alpha=0.1),
        helper.make_node("Inner", ["c"], ["b"], domain="local", alpha=0.2),
    ]
    outer = helper.make_function("local", "Outer", ["a"], ["b"], twice, opset)
    return _model(
        [helper.make_node("Outer", ["x"], ["y"], "call", domain="local")],
        [_value("x", _FLOAT, ["N", 3])], [_value("y", _FLOAT, ["N", 3])], functions=[inner, outer],
    )  # fmt: skip


def _late_shapes() -> ModelProto:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("NonZero", ["r"], ["i"]),
        helper.make_node("Transpose", ["i"], ["t"]),
        helper.make_node("GatherND", ["r", "t"], ["g"]),
        helper.make_node("Shape", ["g"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["z"]),
        helper.make_node("Concat", ["g", "z"], ["y"], axis=0),
    ]
    return _model(
        nodes,
        [_value("x", _FLOAT, ["N", 3]), _value("shape", _INT, [2])],
        [_value("y", _FLOAT, None)],
    )


def _sequence() -> ModelProto:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("SequenceAt", ["t", "one"], ["a"]),
        helper.make_node("ConcatFromSequence", ["t"], ["c"], axis=0),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    one = numpy_helper.from_array(np.array(1), "one")
    return _model(
        nodes, [_value("x", _FLOAT, ["N", 3])], [_value("y", _FLOAT, None)], constants=[one]
    )


def _external() -> ModelProto:
    tensor = TensorProto(name="w", data_type=_FLOAT, dims=[2, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", "0"), ("length", "24")):
        tensor.external_data.add(key=key, value=value)
    return _model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [_value("x", _FLOAT, [2, 3])], [_value("y", _FLOAT, [2, 3])], constants=[tensor],
    )  # fmt: skip


def _sparse() -> ModelProto:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(2, np.float32), "w"),
        numpy_helper.from_array(np.array([[0, 1], [1, 2]]), "i"),
        [2, 3],
    )
    return _model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [_value("x", _FLOAT, [2, 3])], [_value("y", _FLOAT, [2, 3])], sparse=[sparse],
    )  # fmt: skip


def _maps() -> ModelProto:
    # a classifier of support vectors, as scikit-learn's exports end
    classifier = helper.make_node(
        "SVMClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", kernel_type="RBF",
        kernel_params=[0.5, 0.0, 3.0], support_vectors=[0.0, 1.0, 2.0] * 3, rho=[0.0, 0.1, 0.2],
        vectors_per_class=[1, 1, 1], coefficients=[1.0] * 6, prob_a=[-1.0] * 3, prob_b=[0.1] * 3,
        classlabels_ints=[1, 2, 3],
    )  # fmt: skip
    zipped = helper.make_node(
        "ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[1, 2, 3]
    )
    kind = helper.make_map_type_proto(_INT, helper.make_tensor_type_proto(_FLOAT, []))
    scores = helper.make_value_info("y", helper.make_sequence_type_proto(kind))
    outputs = [_value("label", _INT, ["N"]), scores]
    return _model([classifier, zipped], [_value("x", _FLOAT, ["N", 3])], outputs)


def _text() -> ModelProto:
    return _model(
        [helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=" ")],
        [_value("x", TensorProto.STRING, ["N"])],
        [_value("y", TensorProto.STRING, None), _value("n", _INT, ["N"])],
    )
