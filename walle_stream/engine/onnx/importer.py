"""Reads ONNX models: protobuf in, ``engine.graph.Model`` out.

A file is checked as far as a wrong one could hurt: cut off, cyclic, data beside
its folder. What an operator thinks of its inputs is said when it is lowered.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto

from walle_stream.engine.graph import (
    AttributeReference,
    Function,
    Graph,
    Model,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from walle_stream.engine.onnx.bodies import published_functions
from walle_stream.engine.onnx.tensors import array_of, dtype_of
from walle_stream.errors import LoweringError, ModelError

DOMAIN_NAMES = {"ai.onnx": ""}
"""Other names of a domain."""

_PLAIN_ATTRIBUTES = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


def load_model(path: str | Path) -> Model:
    """Read a model.

    Args:
        path: Of an ONNX file; tensors beside it are read from its folder alone.

    Returns:
        The model.

    Raises:
        ModelError: It is no ONNX model, or one that cannot be read.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    return parse_model(data, folder=file.parent, name=str(path))


def parse_model(data: bytes, *, folder: Path | None = None, name: str = "model") -> Model:
    """Read a model from bytes.

    Args:
        data: Of a ``ModelProto``.
        folder: Where its tensors outside of the file are; None: it may have none.
        name: For messages.

    Returns:
        The model.

    Raises:
        ModelError: It is no ONNX model, or one that cannot be read.
    """
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{name}: no ONNX model, or cut off: {error}") from error
    return import_model(proto, folder=folder, name=name)


def import_model(proto: ModelProto, *, folder: Path | None = None, name: str = "model") -> Model:
    """Take over a model.

    Args:
        proto: As ``onnx.load`` gives it.
        folder: Where its tensors outside of the file are; None: it may have none.
        name: For messages.

    Returns:
        The model.

    Raises:
        ModelError: It is not a model that can be run.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: it has no graph: no ONNX model, or cut off")
    opsets = {_domain(each.domain): each.version for each in proto.opset_import} or {"": 1}
    try:
        reader = _Reader(opsets, folder)
        graph = reader.graph(proto.graph)
        functions = {
            (_domain(each.domain), each.name, each.overload): reader.function(each)
            for each in proto.functions
        }
        functions = {**published_functions(proto, opsets, functions, reader.function), **functions}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        if isinstance(error, (ModelError, LoweringError)):
            raise type(error)(f"{name}: {error.message}") from error
        raise ModelError(f"{name}: it cannot be read: {error}") from error
    return Model(graph, functions, opsets)


class _Reader:
    def __init__(self, opsets: Mapping[str, int], folder: Path | None) -> None:
        self._opsets = opsets
        self._folder = folder

    def graph(self, proto: GraphProto) -> Graph:
        constants = {each.name: array_of(each, self._folder) for each in proto.initializer}
        for sparse in proto.sparse_initializer:
            constants[sparse.values.name] = _dense(sparse, self._folder)
        nodes = [self.node(each) for each in proto.node]
        inputs = {each.name: value_type(each.type) for each in proto.input}
        return Graph(
            proto.name,
            inputs,
            {each.name: value_type(each.type) for each in proto.output},
            tuple(sorted_nodes(nodes, {*constants, *inputs})),
            constants,
        )

    def node(self, proto: NodeProto, opsets: Mapping[str, int] | None = None) -> Node:
        domain = _domain(proto.domain)
        return Node(
            proto.op_type,
            tuple(proto.input),
            tuple(proto.output),
            {each.name: self.attribute(each) for each in proto.attribute},
            proto.name,
            domain,
            (opsets or self._opsets).get(domain, 1),
            proto.overload,
        )

    def attribute(self, proto: AttributeProto) -> Any:
        if proto.ref_attr_name:
            return AttributeReference(proto.ref_attr_name)
        return self._attribute_value(proto)

    def _attribute_value(self, proto: AttributeProto) -> Any:
        plain = _PLAIN_ATTRIBUTES.get(proto.type)
        if plain is not None:
            value = getattr(proto, plain)
            return value if plain in {"f", "i", "s"} else tuple(value)
        match proto.type:
            case AttributeProto.TENSOR:
                return array_of(proto.t, self._folder)
            case AttributeProto.TENSORS:
                return tuple(array_of(each, self._folder) for each in proto.tensors)
            case AttributeProto.GRAPH:
                return self.graph(proto.g)
            case AttributeProto.GRAPHS:
                return tuple(self.graph(each) for each in proto.graphs)
        return self._rare_attribute(proto)

    def _rare_attribute(self, proto: AttributeProto) -> Any:
        match proto.type:
            case AttributeProto.SPARSE_TENSOR:
                return _dense(proto.sparse_tensor, self._folder)
            case AttributeProto.TYPE_PROTO:
                return value_type(proto.tp)
        raise ModelError(f"attribute {proto.name!r} has the unknown type {proto.type}")

    def function(self, proto: FunctionProto) -> Function:
        opsets = {_domain(each.domain): each.version for each in proto.opset_import}
        inner = _Reader({**self._opsets, **opsets}, self._folder)
        nodes = [inner.node(each) for each in proto.node]
        return Function(
            tuple(proto.input),
            tuple(proto.output),
            tuple(proto.attribute),
            {each.name: self.attribute(each) for each in proto.attribute_proto},
            tuple(sorted_nodes(nodes, set(proto.input))),
        )


def _domain(name: str) -> str:
    return DOMAIN_NAMES.get(name, name)


def value_type(proto: TypeProto) -> ValueType:
    """Read the type of an input or output.

    Args:
        proto: As in the file; an empty one says nothing.

    Returns:
        The type, None where none is said.

    Raises:
        ModelError: It is a map.
    """
    match proto.WhichOneof("value"):
        case "tensor_type" | "sparse_tensor_type" as which:
            tensor = getattr(proto, which)
            shape: tuple[int | str | None, ...] | None = None
            if tensor.HasField("shape"):
                shape = tuple(_dim(each) for each in tensor.shape.dim)
            return TensorType(dtype_of(tensor.elem_type), shape) if tensor.elem_type else None
        case "sequence_type":
            return SequenceType(value_type(proto.sequence_type.elem_type))
        case "optional_type":
            return OptionalType(value_type(proto.optional_type.elem_type))
        case "map_type":
            raise ModelError("maps are no values of this engine: export the model without ZipMap")
    return None


def _dim(proto: Any) -> int | str | None:
    which = proto.WhichOneof("value")
    if which == "dim_value":
        return int(proto.dim_value)
    return str(proto.dim_param) or None if which == "dim_param" else None


def _dense(proto: onnx.SparseTensorProto, folder: Path | None) -> Any:
    values, indices = array_of(proto.values, folder), array_of(proto.indices, folder)
    shape = tuple(proto.dims)
    if indices.ndim == 2:  # noqa: PLR2004  # one row of coordinates a value
        indices = np.ravel_multi_index(tuple(indices.T), shape)
    dense = np.zeros(int(np.prod(shape)), values.dtype)
    dense[indices] = values
    return dense.reshape(shape)


def sorted_nodes(nodes: Sequence[Node], known: Iterable[str]) -> list[Node]:
    """Put nodes in an order in which each finds its inputs made.

    Args:
        nodes: In any order; most files have them sorted.
        known: Names that are made before.

    Returns:
        The nodes.

    Raises:
        ModelError: They are cyclic, or a name is made twice.
    """
    producer: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.outputs:
            if name and producer.setdefault(name, number) != number:
                raise ModelError(f"{node.title}: {name!r} is made twice")
    made = set(known)
    order: list[Node] = []
    waiting = list(nodes)
    while waiting:
        later = []
        for node in waiting:
            free = {name for graph in node.graphs() for name in graph.free_names}
            needed = {*node.inputs, *free} & producer.keys()
            if needed <= made:
                made.update(node.outputs)
                order.append(node)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise ModelError(f"{later[0].title}: it waits for itself: the graph is cyclic")
        waiting = later
    return order
