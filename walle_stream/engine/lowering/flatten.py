"""Inlines the nodes of a function or a graph in place of the node that calls it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from walle_stream.engine.graph import AttributeReference, Function, Graph, Node
from walle_stream.errors import ModelError


def flattened_call(node: Node, function: Function, prefix: str) -> list[Node]:
    """Return a function's nodes, which read the inputs of a call and make its outputs.

    ``prefix`` is unique to the call, and precedes the names that the function makes.

    Raises:
        ModelError: The call has more inputs than the function takes.
    """
    if len(node.inputs) > len(function.inputs):
        raise ModelError(
            f"{node.title} gives {len(node.inputs)} inputs, more than {len(function.inputs)}"
        )
    attributes = {**function.defaults, **node.attributes}
    nodes = [_bound(inner, attributes) for inner in function.nodes]
    return _placed(nodes, function.inputs, function.outputs, node, prefix)


def flattened_branch(node: Node, branch: Graph, prefix: str) -> tuple[list[Node], dict[str, Any]]:
    """Return nodes of a branch that make the outputs of an ``If``, and its constants by new name.

    ``prefix`` precedes the names that the branch makes.
    """
    nodes = _placed(list(branch.nodes), (), tuple(branch.outputs), node, prefix, branch.constants)
    return nodes, {prefix + name: data for name, data in branch.constants.items()}


def flattened_graph(node: Node, graph: Graph, prefix: str) -> list[Node]:
    """Return the nodes, with constants, of a graph that a node calls as a function.

    ``prefix`` is unique to the call, and precedes the names that the graph makes.
    """
    constants = [
        Node("Constant", (), (prefix + name,), {"value": data}, node.name, version=13)
        for name, data in graph.constants.items()
    ]
    inputs = tuple(name for name in graph.inputs if name not in graph.constants)
    outputs = tuple(graph.outputs)
    return constants + _placed(list(graph.nodes), inputs, outputs, node, prefix, graph.constants)


def _placed(
    nodes: list[Node],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    node: Node,
    prefix: str,
    constants: Mapping[str, Any] | None = None,
) -> list[Node]:
    names = {name: prefix + name for name in constants or {}}
    for inner in nodes:
        names.update((name, prefix + name) for name in inner.outputs if name)
    actual = dict(zip(inputs, node.inputs, strict=False))
    names.update((name, actual.get(name, "")) for name in inputs)
    placed = [renamed(inner, names, f"{node.name or prefix}/") for inner in nodes]
    for formal, wanted in zip(outputs, node.outputs, strict=False):
        if wanted:
            source = names.get(formal, formal)
            placed.append(Node("Identity", (source,), (wanted,), name=node.name, version=1))
    return placed


def renamed(node: Node, names: Mapping[str, str], prefix: str = "") -> Node:
    """Return a node with renamed values, also in its graphs; names not in ``names`` stay."""
    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
        attributes={name: _renamed_value(value, names) for name, value in node.attributes.items()},
        name=prefix + node.name if node.name else "",
    )


def _renamed_value(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, tuple) and any(isinstance(element, Graph) for element in value):
        return tuple(_renamed_value(element, names) for element in value)
    if not isinstance(value, Graph):
        return value
    own = {
        *value.inputs,
        *value.constants,
        *(name for node in value.nodes for name in node.outputs),
    }
    free = {old: new for old, new in names.items() if old not in own}
    return replace(
        value,
        outputs={free.get(name, name): kind for name, kind in value.outputs.items()},
        nodes=tuple(renamed(node, free) for node in value.nodes),
    )


def _bound(node: Node, values: Mapping[str, Any]) -> Node:
    attributes = {}
    for name, value in node.attributes.items():
        if isinstance(value, AttributeReference):
            if value.name in values:
                attributes[name] = values[value.name]
        elif isinstance(value, Graph):
            nodes = tuple(_bound(inner, values) for inner in value.nodes)
            attributes[name] = replace(value, nodes=nodes)
        else:
            attributes[name] = value
    return replace(node, attributes=attributes)
