"""Checks of graphs, and the bodies that ONNX publishes for operators without a rule."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from onnx import FunctionProto, ModelProto, defs

from walle_stream.engine.graph import Function, Node, OperatorKey
from walle_stream.engine.lowering.registry import rules
from walle_stream.errors import ModelError

CALLS_MAX: Final = 256
"""Largest depth of function calls; names of values grow with each call."""


def sorted_nodes(nodes: Sequence[Node], known: Iterable[str]) -> list[Node]:
    """Return nodes in topological order; nodes that are in such an order keep it.

    Raises:
        ModelError: The nodes are cyclic, or a name is made twice.
    """
    result = set(known)
    producer: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.outputs:
            if name and (name in result or producer.setdefault(name, number) != number):
                raise ModelError(f"{node.title}: {name!r} is made twice")
        if max(Counter(filter(None, node.outputs)).values(), default=1) > 1:
            raise ModelError(f"{node.title}: two of its outputs have one name")
    needs = [{producer[name] for name in node.needed if name in producer} for node in nodes]
    if all(max(numbers, default=-1) < number for number, numbers in enumerate(needs)):
        return list(nodes)
    order = _sorted_numbers(needs)
    if len(order) < len(nodes):
        left = min(set(range(len(nodes))) - set(order))
        raise ModelError(f"{nodes[left].title}: it depends on itself: the graph is cyclic")
    return [nodes[number] for number in order]


def _sorted_numbers(needs: Sequence[set[int]]) -> list[int]:
    users: list[list[int]] = [[] for _ in needs]
    missing = [len(numbers) for numbers in needs]
    for number, numbers in enumerate(needs):
        for other in numbers:
            users[other].append(number)
    ready = deque(number for number, count in enumerate(missing) if not count)
    order = []
    while ready:
        number = ready.popleft()
        order.append(number)
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse duplicate names.

    Raises:
        ModelError: A name occurs twice.
    """
    for name, count in Counter(names).items():
        if count > 1:
            raise ModelError(f"{what} {name!r} occurs {count} times")


def check_calls(functions: Mapping[OperatorKey, Function]) -> None:
    """Refuse functions that call themselves, directly or not, and too long chains of calls.

    Raises:
        ModelError: A function calls itself, and the message names the cycle; or a chain of calls
            is longer than ``CALLS_MAX``.
    """
    calls = {
        key: {inner.key for node in function.nodes for inner in node.within()} & functions.keys()
        for key, function in functions.items()
    }
    depths: dict[OperatorKey, int] = {}
    # not recursive: a file may have a chain of calls of any length
    for start in functions:
        way = {start: sorted(calls[start])} if start not in depths else {}
        while way:
            last = next(reversed(way))
            if not way[last]:
                depths[last] = 1 + max((depths[callee] for callee in calls[last]), default=0)
                del way[last]
                continue
            key = way[last].pop()
            if key in way:
                names = [*list(way)[list(way).index(key) :], key]
                chain = " -> ".join(".".join(filter(None, name[:2])) for name in names)
                raise ModelError(f"function {key.name!r} calls itself: {chain}")
            if key not in depths:
                way[key] = sorted(calls[key])
    deepest = max(depths, key=lambda function: depths[function], default=None)
    if deepest is not None and depths[deepest] > CALLS_MAX:
        raise ModelError(
            f"function {deepest.name!r} starts a chain of {depths[deepest]} calls, more than"
            f" {CALLS_MAX}"
        )


def published_functions(
    proto: ModelProto,
    opsets: Mapping[str, int],
    functions: Mapping[OperatorKey, Any],
    read: Callable[[FunctionProto], Function],
) -> dict[OperatorKey, Function]:
    """Return the bodies of used operators that have no rule and that the model does not define."""
    bodies: dict[OperatorKey, Function] = {}
    for node in proto.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = OperatorKey(domain, node.op_type, node.overload)
        if (domain, node.op_type) in rules() or key in functions or key in bodies:
            continue
        try:
            schema = defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
        except defs.SchemaError:
            continue
        if schema.has_function:
            bodies[key] = read(schema.function_body)
    return bodies
