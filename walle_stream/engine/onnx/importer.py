"""Reads ONNX models: protobuf in, ``engine.graph.Model`` out.

Checks find files that could do harm: truncated files, cycles, and data outside the folder.
Lowering checks the inputs of operators.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueInfoProto,
)

from walle_stream.engine.graph import (
    AttributeReference,
    Function,
    Graph,
    MapType,
    Model,
    Node,
    OperatorKey,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.lowering.registry import NEWEST
from walle_stream.engine.onnx.checks import (
    check_calls,
    check_names,
    published_functions,
    sorted_nodes,
)
from walle_stream.engine.onnx.tensors import array_of, dense_of
from walle_stream.engine.planning.weights import with_gaps
from walle_stream.engine.program import Array
from walle_stream.errors import EngineError, LoweringError, ModelError

DOMAIN_NAMES = {"ai.onnx": ""}

OPSETS: Final = {
    "": NEWEST, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "ai.onnx.preview": 1,
    "com.microsoft": 1,
}  # fmt: skip
"""The newest version of each domain that this engine knows."""

DEPTH_MAX: Final = 32
"""Largest nesting depth of graphs, and of types."""

_LETTER: Final = re.compile(r"[^\W\d_]")
"""The name of a size has one; others ("", "?", "-1") stand for another unknown size each time."""

_PLAIN_ATTRIBUTES = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


def load_model(path: str | Path) -> Model:
    """Read an ONNX file. Blocks; external tensors are read only from the file's folder.

    Raises:
        ModelError: The file is not an ONNX model, or cannot be read.
    """
    if not isinstance(path, (str, Path)):
        raise ModelError(f"a model's path is expected, not {path!r:.100}")
    file = Path(path)
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{str(path)!r}: {reason}") from error
    return parse_model(data, folder=file.parent, name=str(path))


def parse_model(data: bytes, *, folder: Path | None = None, name: str = "model") -> Model:
    """Read the bytes of a ``ModelProto``, called ``name`` in messages.

    ``folder`` has its external tensors; with None the model may have none.

    Raises:
        ModelError: The bytes are not an ONNX model, or cannot be read.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ModelError(f"{name}: bytes of a model are expected, not {type(data).__name__}")
    proto = ModelProto()
    try:
        proto.ParseFromString(bytes(data))
    except DecodeError as error:
        raise ModelError(
            f"{name}: not an ONNX model, or truncated: {' '.join(str(error).split())}"
        ) from error
    return import_model(proto, folder=folder, name=name)


def import_model(proto: ModelProto, *, folder: Path | None = None, name: str = "model") -> Model:
    """Import a model that ``onnx.load`` has read; see ``parse_model``.

    Raises:
        ModelError: The model cannot be run.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: it has no graph: not an ONNX model, or truncated")
    try:
        opsets = _opsets(proto.opset_import) or {"": 1}
        reader = _Reader(opsets, folder)
        graph = reader.graph(proto.graph)
        _check_text(*(entry.domain for entry in proto.opset_import))
        check_names([f"{_domain(f.domain)}.{f.name}.{f.overload}" for f in proto.functions],
                    "function")  # fmt: skip
        functions = {
            OperatorKey(
                _domain(function.domain), function.name, function.overload
            ): reader.function(function)
            for function in proto.functions
        }
        functions = {**published_functions(proto, opsets, functions, reader.function), **functions}
        check_calls(functions)
    except EngineError as error:
        raise type(error)(f"{name}: {error.message}") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{name}: it cannot be read: {reason}") from error
    return Model(graph, functions, opsets)


def _weights(nodes: Iterable[Node], outputs: Iterable[str]) -> set[str]:
    """Return the names that only products read, as their right operand."""
    right: set[str] = set()
    others = set(outputs)
    for node in nodes:
        is_product = node.operator == "MatMul" and not node.domain and len(node.inputs) > 1
        right.update(node.inputs[1:] if is_product else ())
        others.update(node.inputs[:1] if is_product else node.inputs)
        for graph in node.graphs():
            others |= graph.free_names
    return right - others


class _Reader:
    def __init__(self, opsets: Mapping[str, int], folder: Path | None) -> None:
        self._opsets = opsets
        self._folder = folder
        self._depth = 0
        self._attributes: Mapping[Any, Callable[[AttributeProto], Any]] = {
            AttributeProto.TENSOR: lambda proto: array_of(proto.t, folder),
            AttributeProto.TENSORS: lambda proto: tuple(
                array_of(tensor, folder) for tensor in proto.tensors
            ),
            AttributeProto.GRAPH: lambda proto: self.graph(proto.g),
            AttributeProto.GRAPHS: lambda proto: tuple(map(self.graph, proto.graphs)),
            AttributeProto.SPARSE_TENSOR: lambda proto: dense_of(proto.sparse_tensor, folder),
            AttributeProto.TYPE_PROTO: lambda proto: value_type(proto.tp),
        }

    def graph(self, proto: GraphProto) -> Graph:
        self._depth += 1
        _check_text(proto.name)
        if self._depth > DEPTH_MAX:
            raise ModelError(f"graph {proto.name!r} is nested in more than {DEPTH_MAX} others")
        constants = self._constants(proto)
        check_names([value.name for value in proto.input], f"graph {proto.name!r}: input")
        inputs = {value.name: _named_type(value, "input") for value in proto.input}
        nodes = [self.node(node) for node in proto.node]
        outputs = self._outputs(proto, nodes, {*constants, *inputs})
        order = tuple(sorted_nodes(nodes, {*constants, *inputs}))
        self._depth -= 1
        for name in _weights(nodes, outputs):
            if name in constants:
                constants[name] = with_gaps(constants[name])
        return Graph(proto.name, inputs, outputs, order, constants)

    def _constants(self, proto: GraphProto) -> dict[str, Array]:
        names = [tensor.name for tensor in proto.initializer]
        names += [tensor.values.name for tensor in proto.sparse_initializer]
        _check_text(*names)
        constants = {tensor.name: array_of(tensor, self._folder) for tensor in proto.initializer}
        for sparse in proto.sparse_initializer:
            constants[sparse.values.name] = dense_of(sparse, self._folder)
        check_names(names, f"graph {proto.name!r}: initializer")
        if "" in constants:
            raise ModelError(f"graph {proto.name!r}: an initializer has no name")
        return constants

    def _outputs(self, proto: GraphProto, nodes: list[Node], known: set[str]) -> dict[str, Any]:
        # a value may be an output twice; the second one gets another name
        taken = known | {name for node in nodes for name in node.outputs}
        outputs: dict[str, ValueType] = {}
        for number, value in enumerate(proto.output):
            name = value.name
            if name in outputs:
                while name in taken or name in outputs:
                    name = f"{name}#{number}"
                nodes.append(Node("Identity", (value.name,), (name,), version=1))
            outputs[name] = _named_type(value, "output")
        return outputs

    def node(self, proto: NodeProto) -> Node:
        _check_text(proto.op_type, proto.name, proto.domain, proto.overload)
        _check_text(*proto.input, *proto.output, *(attribute.name for attribute in proto.attribute))
        domain = _domain(proto.domain)
        node = Node(
            proto.op_type, tuple(proto.input), tuple(proto.output), {}, proto.name, domain,
            self._opsets.get(domain, 1), proto.overload,
        )  # fmt: skip
        newest = OPSETS.get(domain)
        if newest is not None and not 1 <= node.version <= newest:
            raise LoweringError(
                f"{node.title}: this engine supports opsets 1 to {newest} of"
                f" {domain or 'ai.onnx'}: convert the model (onnx.version_converter)"
            )
        try:
            check_names([attribute.name for attribute in proto.attribute], "attribute")
            attributes = {
                attribute.name: self.attribute(attribute) for attribute in proto.attribute
            }
        except EngineError as error:
            raise type(error)(f"{node.title}: {error.message}") from error
        return replace(node, attributes=attributes)

    def attribute(self, proto: AttributeProto) -> Any:
        _check_text(proto.ref_attr_name)
        if proto.ref_attr_name:
            return AttributeReference(proto.ref_attr_name)
        plain = _PLAIN_ATTRIBUTES.get(proto.type)
        if plain is not None:
            value = getattr(proto, plain)
            return value if plain in {"f", "i", "s"} else tuple(value)
        read = self._attributes.get(proto.type)
        if read is None:
            raise ModelError(f"attribute {proto.name!r} has the unknown type {proto.type}")
        return read(proto)

    def function(self, proto: FunctionProto) -> Function:
        inner = _Reader({**self._opsets, **_opsets(proto.opset_import)}, self._folder)
        _check_text(proto.name, proto.domain, proto.overload)
        _check_text(*proto.input, *proto.output, *proto.attribute)
        check_names([*proto.input], f"function {proto.name!r}: input")
        check_names([*proto.output], f"function {proto.name!r}: output")
        nodes = [inner.node(node) for node in proto.node]
        return Function(
            tuple(proto.input),
            tuple(proto.output),
            tuple(proto.attribute),
            {attribute.name: self.attribute(attribute) for attribute in proto.attribute_proto},
            tuple(sorted_nodes(nodes, set(proto.input))),
        )


def _domain(name: str) -> str:
    return DOMAIN_NAMES.get(name, name)


def _opsets(imports: Sequence[Any]) -> dict[str, int]:
    return {_domain(entry.domain): int(entry.version) for entry in imports}


def _check_text(*names: str | bytes) -> None:
    # protobuf returns bytes if a name is not UTF-8
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name {name[:100]!r} is not UTF-8")


def _named_type(proto: ValueInfoProto, what: str) -> ValueType:
    _check_text(proto.name)
    if not proto.name:
        raise ModelError(f"an {what} has no name")
    try:
        return value_type(proto.type)
    except EngineError as error:
        raise type(error)(f"{what} {proto.name!r}: {error.message}") from error


def value_type(proto: TypeProto, depth: int = 0) -> ValueType:
    """Read the type of an input or output, nested in ``depth`` others; None if it has no type.

    Raises:
        ModelError: The type is opaque, or is nested too deeply.
    """
    if depth > DEPTH_MAX:
        raise ModelError(f"its type is nested in more than {DEPTH_MAX} others")
    match proto.WhichOneof("value"):
        case "tensor_type" | "sparse_tensor_type" as which:
            tensor = getattr(proto, which)
            shape: tuple[int | str | None, ...] | None = None
            if tensor.HasField("shape"):
                shape = tuple(_dim(dim) for dim in tensor.shape.dim)
            return TensorType(element_type(tensor.elem_type), shape) if tensor.elem_type else None
        case "sequence_type":
            return SequenceType(value_type(proto.sequence_type.elem_type, depth + 1))
        case "optional_type":
            return OptionalType(value_type(proto.optional_type.elem_type, depth + 1))
        case "map_type":
            kind = proto.map_type
            return MapType(element_type(kind.key_type), value_type(kind.value_type, depth + 1))
        case "opaque_type":
            raise ModelError("values of an opaque type cannot be read")
    return None


def _dim(proto: Any) -> int | str | None:
    which = proto.WhichOneof("value")
    if which == "dim_value":
        # some exporters write -1 for an unknown size
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    if which != "dim_param":
        return None
    _check_text(proto.dim_param)
    is_symbol = _LETTER.search(proto.dim_param) and proto.dim_param != "None"
    return str(proto.dim_param) if is_symbol else None
