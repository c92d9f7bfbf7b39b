"""Files that are no models, or models that would hurt: one clear line each."""

import os
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from walle_stream.engine import load_bytes
from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import MapType, SequenceType, TensorType
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.onnx.backend import prepare
from walle_stream.engine.onnx.checks import CALLS_MAX
from walle_stream.engine.onnx.importer import (
    DEPTH_MAX,
    OPSETS,
    import_model,
    load_model,
    parse_model,
)
from walle_stream.errors import EngineError, LoweringError, ModelError

FLOAT = TensorProto.FLOAT


def value(name, kind=FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes=None, inputs=None, outputs=None, opset=21, **more):
    functions = more.pop("functions", [])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"], "neg")] if nodes is None else nodes, "g",
        inputs or [value("x")], outputs or [value("y")], **more,
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions)


def refused(proto, folder=None, error=ModelError):
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    with pytest.raises(error) as caught:
        parse_model(data, folder=folder, name="file")
    text = str(caught.value)
    assert text.startswith("file: ")
    assert "\n" not in text
    return text


def run(proto, **given):
    read = parse_model(proto.SerializeToString())
    return GraphRunner(read.graph, read.functions, backend_named("numpy")).run(given)


# constants as bytes, as exporters write them


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "uint16", "uint32", "uint64"])
def test_whole_numbers_of_bytes_are_numpys_own(dtype):
    numbers = np.array([300, 4_000, 257, 7], dtype)
    read = numpy_helper.from_array(numbers, "c")
    assert read.raw_data
    kind = helper.np_dtype_to_tensor_dtype(numbers.dtype)
    nodes = [
        helper.make_node("Add", ["c", "x"], ["s"]),
        helper.make_node("Div", ["s", "c"], ["d"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.DOUBLE),
        helper.make_node("Cast", ["d"], ["z"], to=TensorProto.FLOAT),
    ]
    outputs = [value("y", TensorProto.DOUBLE, (4,)), value("z", FLOAT, (4,))]
    proto = model(nodes, [value("x", kind, (4,))], outputs, initializer=[read])
    y, z = run(proto, x=np.array([0, 300, 1, 7], dtype))
    assert y.tolist() == [300, 4_300, 258, 14]
    assert z.tolist() == [1, 1, 1, 2]
    assert y.dtype.isbuiltin == 1


def test_doubles_of_bytes_stay_doubles():
    read = numpy_helper.from_array(np.array([123_456_789.0]), "c")
    nodes = [
        helper.make_node("Add", ["c", "x"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.INT64),
    ]
    ends = [value("x", TensorProto.DOUBLE, (1,))], [value("y", TensorProto.INT64, (1,))]
    assert run(model(nodes, *ends, initializer=[read]), x=np.zeros(1))[0].tolist() == [123_456_789]


# files


@pytest.mark.parametrize("data", ["abc", None, 5])
def test_what_is_no_bytes_is_refused(data):
    with pytest.raises(ModelError, match="bytes of a model are expected"):
        parse_model(data)


def test_what_is_no_path_is_refused():
    with pytest.raises(ModelError, match="path is expected, not 5"):
        load_model(5)


def test_what_is_no_protobuf_is_refused():
    assert "not an ONNX model, or truncated" in refused(b"not a model")


def test_nothing_is_no_model():
    assert "it has no graph" in refused(b"")


def test_every_cut_of_a_model_is_refused_or_read():
    data = model().SerializeToString()
    for size in range(len(data)):
        with suppress(EngineError):
            parse_model(data[:size])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError):
        load_model(tmp_path)
    with pytest.raises(ModelError):
        load_model("a\0b")


# versions and operators


@pytest.mark.parametrize("opset", [0, -1, OPSETS[""] + 1, 99, 2**62])
def test_an_opset_that_is_not_known_is_refused(opset):
    text = refused(model(opset=opset), error=LoweringError)
    assert f"node 'neg' (Neg, opset {opset})" in text
    assert "version_converter" in text


def test_an_operator_that_is_not_known_is_refused_when_it_is_run():
    with pytest.raises(
        LoweringError, match=r"node 'it' \(Nothing, opset 21\): there is no such operator; export"
    ):
        run(model([helper.make_node("Nothing", ["x"], ["y"], "it")]), x=np.zeros(2, np.float32))


# names and order


def test_a_cycle_is_refused():
    nodes = [
        helper.make_node("Add", ["x", "y"], ["z"], "add"),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    assert "node 'add' (Add, opset 21): it depends on itself" in refused(model(nodes))


def test_nodes_in_another_order_are_sorted():
    names = ["x", *(f"v{number}" for number in range(3000)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    read = import_model(model(nodes[::-1]))
    assert [each.outputs[0] for each in read.graph.nodes] == names[1:]


@pytest.mark.parametrize("name", ["y", "x", "c"])
def test_a_name_is_made_once(name):
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], [name], "abs")]
    constant = numpy_helper.from_array(np.zeros(2, np.float32), "c")
    assert f"node 'abs' (Abs, opset 21): {name!r} is made twice" in refused(
        model(nodes, initializer=[constant])
    )


def test_outputs_of_a_node_have_names_of_their_own():
    nodes = [helper.make_node("Split", ["x"], ["y", "y"], "split", num_outputs=2)]
    assert "two of its outputs have one name" in refused(model(nodes))


def test_inputs_initializers_and_attributes_are_there_once():
    assert "input 'x' occurs 2 times" in refused(model(inputs=[value("x"), value("x")]))
    constant = numpy_helper.from_array(np.zeros(2, np.float32), "c")
    assert "initializer 'c' occurs 2 times" in refused(model(initializer=[constant, constant]))
    node = helper.make_node("Elu", ["x"], ["y"], "elu", alpha=1.0)
    node.attribute.append(node.attribute[0])
    assert "node 'elu' (Elu, opset 21): attribute 'alpha' occurs 2 times" in refused(model([node]))


def test_an_output_may_be_given_twice():
    made = run(model(outputs=[value("y"), value("y")]), x=np.ones(2, np.float32))
    assert [each.tolist() for each in made] == [[-1, -1], [-1, -1]]


def test_a_name_that_is_no_text_is_refused():
    data = model([helper.make_node("Neg", ["x"], ["qqqq"])]).SerializeToString()
    assert "not UTF-8" in refused(data.replace(b"qqqq", b"q\xff\xfeq"))


def test_a_long_name_makes_no_long_message():
    text = refused(
        model([helper.make_node("Neg", ["x"], ["y"], "n" * 9999)], opset=99), error=LoweringError
    )
    assert len(text) < 500


def test_a_name_of_many_lines_makes_one_line():
    refused(model([helper.make_node("A\nB", ["x"], ["y"], "n\nm")], opset=99), error=LoweringError)


# functions and graphs in graphs


def function(name, called):
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    domain = "" if called == "Neg" else "local"
    return helper.make_function(
        "local", name, ["a"], ["b"], [helper.make_node(called, ["a"], ["b"], domain=domain)], opset
    )


def call(name):
    return [helper.make_node(name, ["x"], ["y"], domain="local")]


def test_a_function_that_calls_itself_is_refused():
    assert "function 'F' calls itself: local.F -> local.F" in refused(
        model(call("F"), functions=[function("F", "F")])
    )


def test_functions_that_call_each_other_are_refused():
    functions = [function("F", "G"), function("G", "H"), function("H", "G")]
    assert "calls itself: local.G -> local.H -> local.G" in refused(
        model(call("F"), functions=functions)
    )


def test_a_function_that_calls_itself_in_a_branch_is_refused():
    branch = helper.make_graph(
        [helper.make_node("F", ["a"], ["c"], domain="local")], "b", [], [value("c")]
    )
    made = function("F", "Neg")
    made.node.append(helper.make_node("If", ["a"], ["d"], then_branch=branch, else_branch=branch))
    assert "calls itself" in refused(model(call("F"), functions=[made]))


def test_a_chain_of_calls_is_bounded():
    def chain(count):
        names = [*(f"F{number}" for number in range(count)), "Neg"]
        return model(call("F0"), functions=[function(a, b) for a, b in pairwise(names)])

    assert run(chain(CALLS_MAX), x=np.ones(2, np.float32))[0].tolist() == [-1, -1]
    assert "chain of" in refused(chain(CALLS_MAX + 1))
    assert "chain of" in refused(chain(5000))


def test_a_function_is_there_once():
    assert "function 'local.F.' occurs 2 times" in refused(
        model(call("F"), functions=[function("F", "Neg")] * 2)
    )


def test_graphs_within_graphs_are_bounded():
    proto = model([])
    graph = proto.graph
    for _ in range(DEPTH_MAX + 1):
        attribute = graph.node.add(op_type="If").attribute.add(
            name="then_branch", type=AttributeProto.GRAPH
        )
        graph = attribute.g
        graph.name = "inner"
    with pytest.raises(ModelError, match="graph 'inner' is nested in more than"):
        import_model(proto)


def test_a_file_of_messages_within_messages_is_refused():
    assert "not an ONNX model" in refused(b"\x3a" * 5000)


def test_types_within_types_are_bounded():
    proto = model()
    kind = proto.graph.input.add(name="z").type
    for _ in range(DEPTH_MAX + 2):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = FLOAT
    with pytest.raises(ModelError, match="input 'z': its type is nested in more than"):
        import_model(proto)


def test_types_of_maps_are_read():
    proto = model()
    maps = proto.graph.output[0].type.sequence_type.elem_type.map_type
    maps.key_type = TensorProto.INT64
    maps.value_type.tensor_type.elem_type = FLOAT
    found = MapType(np.dtype(np.int64), TensorType(np.dtype(np.float32)))
    assert import_model(proto).graph.outputs == {"y": SequenceType(found)}


def test_scores_by_label_are_what_onnx_calls_maps():
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[5, 6])
    proto = model([node], outputs=[helper.make_empty_tensor_value_info("y")])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert prepare(proto).run([np.float32([1, 2])]) == ([{5: 1.0, 6: 2.0}],)


def test_a_declared_size_below_zero_is_not_known():
    assert import_model(model(inputs=[value("x", shape=[-1])])).graph.inputs["x"].shape == (None,)


@pytest.mark.parametrize("name", ["", "?", "-1", "*", "_", "None"])
def test_a_size_without_a_name_is_another_one_each_time(name):
    proto = model([helper.make_node("Add", ["x", "z"], ["y"])],
                  inputs=[value("x", shape=[name, name]), value("z", shape=[name])])  # fmt: skip
    module = load_bytes(proto.SerializeToString())
    assert [kind.shape for kind in module.inputs.values()] == [(None, None), (None,)]
    x, z = np.ones((2, 3), np.float32), np.ones(1, np.float32)
    assert module.run({"x": x, "z": z})["y"].tolist() == [[2, 2, 2]] * 2


def test_an_attribute_of_an_unknown_type_is_refused():
    node = helper.make_node("Elu", ["x"], ["y"], "elu", alpha=1.0)
    node.attribute[0].type = AttributeProto.UNDEFINED
    assert "node 'elu' (Elu, opset 21): attribute 'alpha' has the unknown type 0" in refused(
        model([node])
    )


# tensors


def constant(**fields):
    return model(initializer=[TensorProto(name="c", **fields)])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dims": [3], "data_type": FLOAT, "raw_data": bytes(8)}, "it has 8 bytes, but its shape [3] needs 12"),
        ({"dims": [1 << 30], "data_type": FLOAT, "raw_data": bytes(4)}, "needs 4294967296"),
        ({"dims": [1 << 62, 1 << 62], "data_type": FLOAT}, "more than"),
        ({"dims": [-1], "data_type": FLOAT}, "negative size"),
        ({"dims": [1] * 65, "data_type": FLOAT, "float_data": [1]}, "65 axes"),
        ({"dims": [2], "data_type": FLOAT, "float_data": [1]}, "it has 1 elements, but its shape [2] needs 2"),
        ({"dims": [], "data_type": FLOAT}, "it has 0 elements"),
        ({"dims": [3], "data_type": TensorProto.INT4, "raw_data": b"1"}, "it has 1 bytes, but its shape [3] needs 2"),
        ({"dims": [1], "data_type": 99, "raw_data": b"1"}, "there is no element type 99"),
        ({"dims": [1], "data_type": TensorProto.STRING, "string_data": [b"\xff"]}, "not UTF-8"),
        ({"dims": [2], "data_type": TensorProto.STRING, "string_data": [b"a"]}, "it has 1 elements"),
    ],
)  # fmt: skip
def test_a_tensor_that_is_not_what_it_says_is_refused(fields, reason):
    text = refused(constant(**fields))
    assert "tensor 'c'" in text
    assert reason in text


def test_a_byte_that_is_no_bool_is_true():
    read = import_model(constant(dims=[3], data_type=TensorProto.BOOL, raw_data=b"\0\1\7"))
    assert read.graph.constants["c"].view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=np.float16),
        np.array([1 + 2j]),
        np.array([True, False]),
        np.zeros((0, 3), np.int8),
        np.array(7, np.uint64),
    ],
)
def test_tensors_are_read_as_they_were_written(array):
    for proto in (
        numpy_helper.from_array(array, "c"),
        helper.make_tensor(
            "c",
            helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape,
            array.reshape(-1).tolist(),
        ),
    ):
        found = import_model(model(initializer=[proto])).graph.constants["c"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def sparse(dims, values, indices):
    proto = model()
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array(values, np.float32), "s"),
            numpy_helper.from_array(np.array(indices, np.int64), "i"), dims,
        )
    )  # fmt: skip
    return proto


def test_sparse_tensors_are_spread():
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        found = import_model(sparse([2, 3], [7, 8], indices)).graph.constants["s"]
        assert found.tolist() == [[0, 7, 0], [0, 0, 8]]


@pytest.mark.parametrize(
    ("dims", "values", "indices"),
    [
        ([2, 3], [7, 8], [1, 6]), ([2, 3], [7, 8], [1, -1]), ([2, 3], [7], [1, 2]),
        ([2, 3], [7, 8], [[0, 1], [2, 0]]), ([2, 3], [7], [[0, 0, 0]]), ([2, 3], [[7]], [[1]]),
        ([1 << 40], [7], [1]), ([-2], [7], [1]), ([], [7, 8], [0, 1]),
    ],
)  # fmt: skip
def test_a_sparse_tensor_that_is_not_what_it_says_is_refused(dims, values, indices):
    assert "sparse tensor 's'" in refused(sparse(dims, values, indices))


# tensors beside the model


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "outer" / "model"
    made.mkdir(parents=True)
    (made / "weights").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (made.parent / "secret").write_bytes(bytes(64))
    (made / "within").symlink_to("weights")
    (made / "link").symlink_to(made.parent / "secret")
    (made / "loop").symlink_to("loop")
    (made / "folder").symlink_to(made.parent)
    (made / "null").symlink_to("/dev/zero")
    os.mkfifo(made / "pipe")
    return made


def outside(location, **places):
    tensor = TensorProto(name="c", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **places}.items():
        tensor.external_data.add(key=key, value=str(text))
    return model(initializer=[tensor])


@pytest.mark.parametrize("location", ["weights", "within", "./weights", "../model/weights"])
def test_a_tensor_of_the_folder_is_read(folder, location):
    read = import_model(outside(location, offset=4, length=8), folder=folder)
    assert read.graph.constants["c"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "location",
    ["", ".", "..", "../secret", "/etc/passwd", "/dev/zero", "link", "loop", "folder/secret", "null", "pipe", "nothing", "a\0b", "x" * 5000],
)  # fmt: skip
def test_nothing_outside_of_the_folder_is_read(folder, location):
    assert "which is not a file in the model's folder" in refused(outside(location), folder)


@pytest.mark.parametrize(
    "places",
    [
        {"offset": -1},
        {"offset": "x"},
        {"offset": 12},
        {"offset": 2**62},
        {"length": 4},
        {"length": -1},
        {"offset": "9" * 40},
        {"offset": "٣"},
    ],
)
def test_a_place_that_is_not_in_the_file_is_refused(folder, places):
    assert "tensor 'c'" in refused(outside("weights", **places), folder)


def test_a_model_of_bytes_alone_has_nothing_beside_it():
    assert "load the model from its file" in refused(outside("weights"))


def test_a_size_that_the_file_has_not_is_not_asked_for(folder):
    proto = outside("weights")
    proto.graph.initializer[0].dims[:] = [1 << 30]
    assert "it takes" in refused(proto, folder) or "bytes from 0" in refused(proto, folder)


def test_text_beside_the_model_is_refused(folder):
    proto = outside("weights")
    proto.graph.initializer[0].data_type = TensorProto.STRING
    assert "strings cannot be external data" in refused(proto, folder)


def test_the_backend_counts_its_inputs():
    ready = prepare(model())
    with pytest.raises(EngineError, match="2 inputs are given, more than 1"):
        ready.run([np.zeros(2, np.float32)] * 2)
    with pytest.raises(EngineError, match="input 'x' is missing"):
        ready.run([])
    with pytest.raises(EngineError, match="its dtype is float64"):
        ready.run(np.zeros(2))
