"""Constants as raw bytes, as exporters write them; ONNX's own cases mostly list elements."""

from collections.abc import Iterator

import onnx
from onnx import numpy_helper


def with_raw_constants(model: bytes) -> bytes:
    """Return the same serialized ``ModelProto`` with every tensor stored as raw bytes."""
    proto = onnx.ModelProto.FromString(model)
    for tensor in _tensors(proto):
        if tensor.data_type != onnx.TensorProto.STRING and not tensor.HasField("raw_data"):
            # numpy_helper knows the packed and narrow dtypes; only the doc string is lost
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    return bytes(proto.SerializeToString())


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: "onnx.GraphProto.node") -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from _of_graph(graph)
