"""Runs one node of a rule's tests; some inputs may be constants of its graph."""

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner


def run(operator, inputs, *, version=22, outputs=1, known=(), **attributes):
    names = tuple("" if each is None else f"i{number}" for number, each in enumerate(inputs))
    made = tuple(f"o{number}" for number in range(outputs))
    node = Node(operator, names, made, attributes, "n", "", version)
    values = {name: each for name, each in zip(names, inputs, strict=True) if name}
    constants = {f"i{number}": inputs[number] for number in known}
    given = {name: each for name, each in values.items() if name not in constants}
    graph = Graph("g", dict.fromkeys(given), dict.fromkeys(made), (node,), constants)
    results = GraphRunner(graph, {}, Interpreter()).run(given)
    return results[0] if outputs == 1 else results
