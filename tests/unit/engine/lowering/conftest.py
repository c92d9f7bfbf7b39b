"""Runs one node, as a caller of a model would, and with all that it reads known before."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from walle_stream.engine.backends.reference import Interpreter
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.program import Program
from walle_stream.engine.rules import is_floating
from walle_stream.testing.stages import verify_program

type RunNode = Callable[..., list[Any]]


class _Verified(Interpreter):
    """Holds every program against the rules of its operators before it runs it."""

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def plan(self, program: Program) -> Any:
        verify_program(program)
        self.programs.append(program)
        return super().plan(program)


def _run(node: Node, given: dict[str, Any], constants: dict[str, Any], backend: _Verified) -> Any:
    outputs = {name: None for name in node.outputs if name}
    graph = Graph("test", dict.fromkeys(given), outputs, (node,), constants)
    return GraphRunner(graph, {}, backend).run(given)


def _node(operator: str, inputs: Sequence[Any], **given: Any) -> tuple[Node, dict[str, Any]]:
    names = tuple("" if each is None else f"x{number}" for number, each in enumerate(inputs))
    outputs, omitted = given.pop("outputs", 1), given.pop("omitted", ())
    made = tuple("" if number in omitted else f"y{number}" for number in range(outputs))
    version, domain = given.pop("version", 28), given.pop("domain", "")
    node = Node(operator, names, made, given, "it", domain, version)
    return node, {name: np.asarray(each) for name, each in zip(names, inputs, strict=True) if name}


def _assert_same(one: Any, other: Any) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    if is_floating(one.dtype):
        # products of matrices differ by where in memory they are
        near = 1e-5 if one.dtype.itemsize > 2 else 2**-7
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), rtol=near, atol=near
        )
    else:
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def run_node() -> RunNode:
    """Give the outputs of a node: ``run_node(operator, inputs, attribute=..., version=...)``."""

    def run(operator: str, inputs: Sequence[Any], **given: Any) -> list[Any]:
        node, arrays = _node(operator, inputs, **given)
        late = _run(node, arrays, {}, _Verified())
        early = _run(node, {}, arrays, _Verified())
        for one, other in zip(late, early, strict=True):
            _assert_same(one, other)
        return list(late)

    return run


@pytest.fixture
def count_steps() -> Callable[..., int]:
    """Give how many steps a node becomes, rasters apart."""

    def count(operator: str, inputs: Sequence[Any], known: Sequence[int] = (), **given: Any) -> int:
        node, arrays = _node(operator, inputs, **given)
        constants = {f"x{number}": arrays.pop(f"x{number}") for number in known}
        backend = _Verified()
        _run(node, arrays, constants, backend)
        return sum(
            step.operator != "raster" for program in backend.programs for step in program.steps
        )

    return count
