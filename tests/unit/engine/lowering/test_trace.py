"""Pieces of a graph: what one leaves for the next keeps its name for itself."""

import numpy as np

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Function, Graph, Node
from walle_stream.engine.module import GraphRunner


def _node(operator, inputs, *outputs, **attributes):
    return Node(operator, tuple(inputs), outputs, attributes, version=13)


def test_a_function_that_is_called_again_in_a_later_piece_has_names_of_its_own():
    # repeats a square so often that only its run says how often
    body = (
        _node("Mul", ["a", "a"], "square"),
        _node("Add", ["n", "n"], "times"),
        _node("Tile", ["square", "times"], "out"),
    )
    functions = {("", "F", ""): Function(("a", "n"), ("out",), (), {}, body)}
    then = Graph("then", {}, {"z": None}, (_node("F", ["three", "n"], "z"),))
    nodes = (
        _node("F", ["x", "n"], "first"),
        _node("Add", ["n", "zero"], "unknown"),
        _node("Tile", ["n", "unknown"], "late"),
        _node("ReduceMax", ["late"], "count", keepdims=1),
        _node("F", ["x", "count"], "second"),
        _node("Size", ["first"], "size"),
        _node("Equal", ["size", "four"], "is_four"),
        _node("If", ["is_four"], "third", then_branch=then, else_branch=then),
    )
    constants = {"three": np.float32([3, 3]), "four": np.array(4), "zero": np.array([0])}
    outputs = dict.fromkeys(["first", "second", "third"])
    graph = Graph("test", {"x": None, "n": None}, outputs, nodes, constants)
    made = GraphRunner(graph, functions, Interpreter()).run(
        {"x": np.float32([1, 2]), "n": np.array([1])}
    )
    for each, wanted in zip(made, ([1, 4, 1, 4], [1, 4, 1, 4], [9, 9, 9, 9]), strict=True):
        np.testing.assert_array_equal(each, wanted)
