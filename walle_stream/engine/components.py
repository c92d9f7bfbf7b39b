"""Independent parts of a tensor request, each of which is computed alone.

A request of a script has many expressions, and a batch has many requests. Lowered as one program,
each new mix of expressions would be a new program. A request is therefore cut into its connected
components, each numbered from 0: the same expression has one structure and one plan, whatever
else the request asks for. The result of a component does not depend on the others, to the bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walle_stream.wire.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Component:
    """Connected nodes; a node that no output needs belongs to no component."""

    numbers: Sequence[int]
    """Numbers of the nodes in the request, ascending."""
    nodes: Sequence[Node]
    """Nodes whose inputs are numbers within the component."""
    outputs: Sequence[int]
    """Nodes that the request asks for, ascending, each once."""
    depths: Sequence[int]
    """Number of models for which each node waits; a model counts itself."""


def components(graph: Graph) -> list[Component]:
    """Cut a request into independent parts that have outputs, in the order of their first nodes."""
    wanted = set(graph.outputs)
    if len(wanted) == 1:
        return [_component(graph.nodes, range(len(graph.nodes)), sorted(wanted))]
    roots = _roots(graph.nodes)
    members: dict[int, list[int]] = {}
    for number, root in enumerate(roots):
        members.setdefault(root, []).append(number)
    results = []
    for numbers in members.values():
        mine = [number for number in numbers if number in wanted]
        if mine:
            results.append(_component(graph.nodes, numbers, mine))
    return results


def _component(
    nodes: Sequence[Node], numbers: Sequence[int], outputs: Sequence[int]
) -> Component:  # fmt: skip
    if len(numbers) == len(nodes):
        mine = nodes
    else:
        index_of = {number: at for at, number in enumerate(numbers)}
        mine = [
            Node(
                nodes[n].operator,
                [index_of[index] for index in nodes[n].inputs],
                nodes[n].parameters,
            )
            for n in numbers
        ]
        outputs = [index_of[number] for number in outputs]
    depths: list[int] = []
    for node in mine:
        depth = max((depths[index] for index in node.inputs), default=0)
        depths.append(depth + (node.operator == "model"))
    return Component(numbers, mine, outputs, depths)


def _roots(nodes: Sequence[Node]) -> list[int]:
    # union-find over the nodes' inputs; calls of one model without inputs are joined
    parents = list(range(len(nodes)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    alone: dict[Any, int] = {}
    for number, node in enumerate(nodes):
        read = node.inputs
        if node.operator == "model" and not read:
            read = [alone.setdefault(repr(node.parameters.get("name")), number)]
        for index in read:
            one, other = root(number), root(index)
            parents[max(one, other)] = min(one, other)
    return [root(number) for number in range(len(nodes))]
