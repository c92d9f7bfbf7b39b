"""Mutations of a model: its bytes and its structure.

Each mutation takes a random generator. It changes its argument in place or returns a changed copy.
A mutation that finds nothing to change has no effect.
"""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

ODD_INTS: Final = (
    0, 1, -1, 2, -2, 3, 5, 7, 8, 63, 64, 100, -100, 255, 1000, 65536, 2**31 - 1, 2**31, -(2**31),
    2**32, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
ODD_FLOATS: Final = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-45,
    1e38,
    -1e38,
    1e9,
    math.nan,
    math.inf,
    -math.inf,
)
ODD_TEXTS: Final = (
    b"",
    b"linear",
    b"SAME_UPPER",
    b"mul",
    b"none",
    b"\xff\xfe",
    b"a\nb",
    b"%s{}",
    b"x" * 5000,
)
DOMAINS: Final = (
    "",
    "",
    "ai.onnx.ml",
    "ai.onnx",
    "ai.onnx.preview.training",
    "walle",
    "com.example",
    "\n",
)


def happens(rng: Random, percent: int) -> bool:
    """Return True with a probability of ``percent`` in 100."""
    return rng.randrange(100) < percent


def mutate_bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    """Return mutated bytes of a model's file, which may not be a valid model."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(made) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 32, 100))
        match rng.randrange(8):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(made):
                made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del made[at:]
            case 3:
                del made[at : at + size]
            case 4:
                made[at:at] = rng.randbytes(size)
            case 5:
                made[at:at] = b"\xff" * 9 + b"\x01"
            case 6:
                start = rng.randrange(len(other) + 1)
                made[at : at + rng.choice((0, size))] = other[start : start + size]
            case 7:
                start = rng.randrange(len(made) + 1)
                made[at:at] = made[start : start + size]
    return bytes(made)


def graphs_of(model: ModelProto) -> list[GraphProto]:
    """Return all graphs of a model, the outermost first."""
    found = [model.graph]
    for graph in found:
        for attribute in (each for node in graph.node for each in node.attribute):
            if attribute.HasField("g"):
                found.append(attribute.g)
            found.extend(attribute.graphs)
    return found


def mutate_structure(rng: Random, model: ModelProto, other: ModelProto) -> str:
    """Mutate a parsed model.

    Args:
        rng: Source of random choices.
        model: Model, changed in place.
        other: Model from which parts are inserted.

    Returns:
        Name of the mutation.
    """
    kind = rng.choice(_STRUCTURE)
    kind(rng, model, other)
    return kind.__name__.strip("_")


def _node(rng: Random, model: ModelProto) -> NodeProto:
    nodes = [node for graph in graphs_of(model) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return rng.choice(nodes) if nodes else NodeProto()


def _graph(rng: Random, model: ModelProto) -> GraphProto:
    return rng.choice(graphs_of(model))


def _names(model: ModelProto) -> list[str]:
    found = [""]
    for graph in graphs_of(model):
        found += [each.name for each in (*graph.input, *graph.output, *graph.initializer)]
        found += [name for node in graph.node for name in (*node.input, *node.output)]
    return found


def _operator(rng: Random, model: ModelProto, other: ModelProto) -> None:
    node, theirs = _node(rng, model), _node(rng, other)
    node.op_type = rng.choice(
        (theirs.op_type, theirs.op_type, theirs.op_type, "Nothing", "", "a\nb")
    )
    if happens(rng, 70):
        node.domain = theirs.domain
    if happens(rng, 30):
        node.attribute.extend(theirs.attribute)


def _inputs(rng: Random, model: ModelProto, _: ModelProto) -> None:
    _strings(rng, _node(rng, model).input, _names(model))


def _outputs(rng: Random, model: ModelProto, _: ModelProto) -> None:
    _strings(rng, _node(rng, model).output, _names(model))


def _strings(rng: Random, names: Any, known: Sequence[str]) -> None:
    at = rng.randrange(len(names) + 1)
    match rng.randrange(6):
        case 0 if at < len(names):
            del names[at]
        case 1:
            names.insert(at, rng.choice(known))
        case 2 if at < len(names):
            names[at] = rng.choice(("", "nobody", rng.choice(known)))
        case 3:
            kept = list(names)
            rng.shuffle(kept)
            del names[:]
            names.extend(kept)
        case 4:
            names.extend(rng.choices(known, k=rng.choice((1, 3, 40))))
        case _ if at < len(names):
            names[at] = rng.choice(known)


def _attribute(rng: Random, model: ModelProto, other: ModelProto) -> None:
    node = _node(rng, model)
    if not node.attribute or happens(rng, 15):
        theirs = _node(rng, other)
        names = [each.name for each in theirs.attribute] or [
            "axis",
            "axes",
            "mode",
            "body",
            "value",
        ]
        node.attribute.append(_made_attribute(rng, rng.choice(names)))
        return
    at = rng.randrange(len(node.attribute))
    attribute = node.attribute[at]
    match rng.randrange(8):
        case 0:
            del node.attribute[at]
        case 1:
            attribute.CopyFrom(_made_attribute(rng, attribute.name))
        case 2:
            attribute.name = rng.choice(("axis", "nothing", attribute.name + "s", "body"))
        case 3:
            attribute.type = rng.randrange(18)
        case 4:
            attribute.ref_attr_name = rng.choice(("alpha", "axis", attribute.name))
        case _:
            _other_value(rng, attribute)


def _other_value(rng: Random, attribute: AttributeProto) -> None:
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = _int(rng, attribute.i)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(ODD_FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(ODD_TEXTS)
        case AttributeProto.INTS:
            _numbers(rng, attribute.ints, lambda old: _int(rng, old))
        case AttributeProto.FLOATS:
            _numbers(rng, attribute.floats, lambda _: rng.choice(ODD_FLOATS))
        case AttributeProto.STRINGS:
            _numbers(rng, attribute.strings, lambda _: rng.choice(ODD_TEXTS))
        case AttributeProto.TENSOR:
            change_tensor(rng, attribute.t)
        case AttributeProto.GRAPH:
            graph = attribute.g
            if graph.node:
                del graph.node[rng.randrange(len(graph.node))]


def _int(rng: Random, old: int) -> int:
    near = max(min(old + rng.choice((-1, 1, -2, 2)), 2**63 - 1), -(2**63))
    return rng.choice((near, near, rng.choice(ODD_INTS)))


def _numbers(rng: Random, values: Any, change: Callable[[Any], Any]) -> None:
    at = rng.randrange(len(values) + 1)
    match rng.randrange(5):
        case 0 if at < len(values):
            del values[at]
        case 1:
            values.append(change(values[0] if values else 1))
        case 2:
            del values[:]
        case _ if at < len(values):
            values[at] = change(values[at])


def _made_attribute(rng: Random, name: str) -> AttributeProto:
    value: Any = rng.choice(
        (
            rng.choice(ODD_INTS), rng.choice(ODD_FLOATS), rng.choice(ODD_TEXTS),
            [rng.choice(ODD_INTS) for _ in range(rng.randrange(1, 5))],
            [rng.choice(ODD_FLOATS) for _ in range(rng.randrange(1, 5))],
            [rng.choice(ODD_TEXTS) for _ in range(rng.randrange(1, 4))],
            helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
            helper.make_graph([], "g", [], []),
        )
    )  # fmt: skip
    return helper.make_attribute(name, value)


def _opset(rng: Random, model: ModelProto, _: ModelProto) -> None:
    if model.opset_import and happens(rng, 90):
        rng.choice(model.opset_import).version = rng.choice(
            (rng.randrange(100), rng.randrange(1, 29), rng.randrange(1, 29), rng.choice(ODD_INTS))
        )
    elif happens(rng, 50):
        del model.opset_import[:]
    else:
        model.opset_import.append(helper.make_opsetid(rng.choice(DOMAINS), rng.randrange(30)))


def _domain(rng: Random, model: ModelProto, _: ModelProto) -> None:
    if model.opset_import and happens(rng, 30):
        rng.choice(model.opset_import).domain = rng.choice(DOMAINS)
    else:
        _node(rng, model).domain = rng.choice(DOMAINS)


def _constant(rng: Random, model: ModelProto, _: ModelProto) -> None:
    tensors = [each for graph in graphs_of(model) for each in graph.initializer]
    tensors += [
        attribute.t for graph in graphs_of(model) for node in graph.node
        for attribute in node.attribute if attribute.HasField("t")
    ]  # fmt: skip
    if tensors:
        change_tensor(rng, rng.choice(tensors))
        return
    graph = _graph(rng, model)
    name = rng.choice([each.name for each in graph.input] or ["c"])
    tensor = helper.make_tensor(name, TensorProto.INT64, [2], [rng.choice(ODD_INTS) for _ in "ab"])
    graph.initializer.append(tensor)


def change_tensor(rng: Random, tensor: TensorProto) -> None:
    """Mutate the shape, type, data or location of a tensor.

    Args:
        rng: Source of random choices.
        tensor: Tensor, changed in place.
    """
    match rng.randrange(8):
        case 0 | 1:
            _numbers(rng, tensor.dims, lambda old: _int(rng, old))
        case 2:
            tensor.data_type = rng.randrange(30)
        case 3:
            cut = rng.choice((0, 1, 3, len(tensor.raw_data) // 2))
            tensor.raw_data = tensor.raw_data[:cut]
        case 4:
            tensor.raw_data = rng.randbytes(len(tensor.raw_data))
        case 5:
            fields: list[Any] = [tensor.float_data, tensor.int32_data, tensor.int64_data]
            field = next((each for each in fields if len(each)), None)
            if field is not None:
                field[rng.randrange(len(field))] = rng.choice((0, -1, 2, 2**31 - 1))
            else:
                tensor.raw_data = b"\xff" * len(tensor.raw_data)
        case 6:
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=rng.choice(PLACES))
            key = rng.choice(("offset", "length", "nothing"))
            tensor.external_data.add(key=key, value=rng.choice(("-1", "8", "9" * 30, "x", "")))
        case _:
            tensor.name = rng.choice(("", "x", "y", tensor.name + "_"))


PLACES: Final = ("weights", "", ".", "..", "../secret", "/etc/passwd", "/dev/zero", "pipe", "link",
                 "folder", "a\0b", "x" * 5000)  # fmt: skip


def _value(rng: Random, model: ModelProto, _: ModelProto) -> None:
    graph = _graph(rng, model)
    values = [*graph.input, *graph.output]
    if not values:
        return
    value = rng.choice(values)
    kind = value.type.tensor_type
    match rng.randrange(7):
        case 0:
            kind.elem_type = rng.randrange(30)
        case 1 | 2 if kind.shape.dim:
            rng.choice(kind.shape.dim).dim_value = rng.choice(ODD_INTS)
        case 3:
            for each in kind.shape.dim:
                each.dim_param = rng.choice(("N", "M"))
        case 4:
            value.ClearField("type")
        case 5:
            value.type.sequence_type.elem_type.tensor_type.elem_type = rng.randrange(20)
        case _:
            value.name = rng.choice((*_names(model), "new"))


def _signature(rng: Random, model: ModelProto, _: ModelProto) -> None:
    graph = _graph(rng, model)
    values = rng.choice((graph.input, graph.output))
    match rng.randrange(3):
        case 0 if values:
            del values[rng.randrange(len(values))]
        case 1 if values:
            values.append(rng.choice(values))
        case _:
            name = rng.choice(_names(model)) or "new"
            values.append(
                helper.make_tensor_value_info(name, rng.randrange(1, 20), [rng.choice((1, "N"))])
            )


def _nodes(rng: Random, model: ModelProto, other: ModelProto) -> None:
    graph = _graph(rng, model)
    if not graph.node:
        return
    at = rng.randrange(len(graph.node))
    match rng.randrange(5):
        case 0:
            del graph.node[at]
        case 1:
            graph.node.append(graph.node[at])
        case 2:
            kept = list(graph.node)
            rng.shuffle(kept)
            del graph.node[:]
            graph.node.extend(kept)
        case 3:
            graph.node.append(_node(rng, other))
        case _:
            made = graph.node.add()
            made.CopyFrom(graph.node[at])
            _strings(rng, made.output, ["new", "newer"])


def _cycle(rng: Random, model: ModelProto, _: ModelProto) -> None:
    graph = _graph(rng, model)
    if graph.node:
        late, early = rng.choice(graph.node), rng.choice(graph.node)
        if late.output and early.input:
            early.input[rng.randrange(len(early.input))] = rng.choice(late.output)


def _subgraph(rng: Random, model: ModelProto, other: ModelProto) -> None:
    holders = [
        each for graph in graphs_of(model) for node in graph.node for each in node.attribute
        if each.HasField("g")
    ]  # fmt: skip
    theirs = _graph(rng, rng.choice((model, other)))
    if holders:
        kept = GraphProto()
        kept.CopyFrom(theirs)
        rng.choice(holders).g.CopyFrom(kept)
    else:
        node = _node(rng, model)
        node.op_type = rng.choice(("If", "Loop", "Scan", "SequenceMap"))
        for name in ("then_branch", "else_branch", "body"):
            node.attribute.append(helper.make_attribute(name, theirs))


def _function(rng: Random, model: ModelProto, other: ModelProto) -> None:
    if not model.functions:
        node = _node(rng, model)
        name, domain = rng.choice((*[("F", "f")] * 4, (node.op_type, node.domain)))
        inner = NodeProto()
        inner.CopyFrom(node)
        made = helper.make_function(domain, name, list(node.input), list(node.output), [inner],
                                    [helper.make_opsetid("", rng.randrange(1, 30))])  # fmt: skip
        node.op_type, node.domain = name, domain
        model.functions.append(made)
        return
    function = rng.choice(model.functions)
    match rng.randrange(6):
        case 0:
            _strings(rng, function.input, _names(model))
        case 1:
            _strings(rng, function.output, _names(model))
        case 2 if function.node:
            rng.choice(function.node).op_type, function.domain = function.name, ""
        case 3:
            function.node.append(_node(rng, other))
        case 4:
            model.functions.append(function)
        case _:
            _strings(rng, function.attribute, ["alpha", "axis"])


_STRUCTURE: Final = (
    _operator, _operator, _operator, _inputs, _inputs, _inputs, _outputs, _attribute, _attribute,
    _attribute, _attribute, _opset, _opset, _domain, _constant, _constant, _value, _signature,
    _nodes, _nodes, _cycle, _subgraph, _subgraph, _function, _function, _attribute, _attribute,
    _constant, _constant, _value,
)  # fmt: skip
