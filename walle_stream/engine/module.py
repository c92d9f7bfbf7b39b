"""Runs graphs of any kind: pieces, and the control flow between them.

A graph is lowered piece by piece. A piece ends where its continuation depends on values: at an
``If`` or a loop, and at a shape that a node computes from elements. The plans of a piece are kept
by the shapes of its inputs, so a run with known shapes lowers nothing. MNN calls such a graph a
module, and a piece of it a session.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from walle_stream.engine.control import run_control
from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.limits import Budget, Limits, check_memory, guarded
from walle_stream.engine.lowering.registry import Kind, Value, rules
from walle_stream.engine.lowering.trace import (
    Functions,
    Traced,
    constant_tensors,
    tensors_of,
    trace,
)
from walle_stream.engine.program import Array, Program, Tensor
from walle_stream.engine.values import Data, arrays_of, mapped
from walle_stream.errors import EngineError

PLANS_MAX: Final = 64
"""Plans that a stage of a graph keeps; the least recently used plan is dropped."""

GRAPHS_MAX: Final = 1024
"""Runners of inner graphs that a graph keeps; lowering for new shapes makes new ones."""


class Plan(Protocol):
    """A program prepared for one backend. Thread-safe; blocks."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory of one run, without constants and temporary memory of kernels."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run on inputs of the program's shapes and dtypes; the outputs belong to the caller."""


class Backend(Protocol):
    """Makes plans. Thread-safe."""

    name: str

    def plan(self, program: Program) -> Plan:
        """Prepare a lowered program; the plan keeps it."""

    def compute(self, step: Any, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``backends.reference``."""


class Piece:
    """A lowered part of a graph, and the stage that follows. Thread-safe; blocks."""

    def __init__(
        self, backend: Backend, known: Mapping[str, Value], traced: Traced, wanted: set[str],
        limits: Limits,
    ) -> None:  # fmt: skip
        """Plan the traced nodes; ``known`` are its inputs, ``wanted`` the outputs of the graph."""
        self._given_away = frozenset(wanted)
        self.inputs = [
            (name, tensor) for name, value in known.items() for tensor in tensors_of(value)
            if tensor.data is None
        ]  # fmt: skip
        for node in traced.remaining:
            wanted = wanted | node.needed
        self.values = {
            name: value for name, value in traced.values.items()
            if name in wanted and name not in known
        }  # fmt: skip
        result = {tensor: None for value in self.values.values() for tensor in tensors_of(value)}
        self.outputs = [tensor for tensor in result if tensor.data is None]
        steps = traced.builder.steps
        program = Program(
            [tensor for _, tensor in self.inputs], self.outputs, steps, traced.operators
        )
        self.plan = backend.plan(program) if self.outputs else None
        if self.plan is not None:
            check_memory(self.plan.nbytes, limits)
        self.work = traced.builder.work
        self._titles = traced.titles
        self.next = Stage(tuple(traced.remaining)) if traced.remaining else None

    def _titled(self, message: str) -> str:
        # backends know the node of a step, but not its operator and opset
        for origin, title in self._titles.items():
            begin = f"node {origin!r}: "
            if message.startswith(begin):
                return f"{title}: {message[len(begin) :]}"
        return message

    def run(self, env: dict[str, Data], budget: Budget) -> None:
        """Run the piece on values by name, and add its results to them."""
        budget.spend(self.work)
        if self.plan is not None:
            arrays: list[Array] = []
            for name in dict.fromkeys(name for name, _ in self.inputs):
                arrays.extend(arrays_of(env[name]))
            try:
                result = dict(zip(self.outputs, self.plan.run(arrays), strict=True))
            except EngineError as error:
                raise type(error)(self._titled(error.message)) from error
        else:
            result = {}
        for name, value in self.values.items():
            # a caller may write into an output, but must not write into a constant
            copied = np.array if name in self._given_away else np.asarray
            env[name] = mapped(value, partial(_elements, result, copied))


class Stage:
    """Nodes that are still to be run, and their pieces by shapes and required values."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        """Take over nodes in topological order."""
        self.nodes = nodes
        self.needed = frozenset(name for node in nodes for name in node.needed)
        self._required: OrderedDict[Any, frozenset[str]] = OrderedDict()
        self._pieces: OrderedDict[Any, Piece] = OrderedDict()
        self._rests: dict[tuple[int, ...], Stage] = {}
        self._lock = threading.Lock()

    def rest(self, nodes: tuple[Node, ...]) -> "Stage":
        """Return the stage of some of the nodes; the same nodes have the same stage."""
        key = tuple(id(node) for node in nodes)
        return self._rests.get(key) or self._rests.setdefault(key, Stage(nodes))

    def piece(
        self, env: Mapping[str, Data], constants: Mapping[str, Array], outputs: set[str],
        functions: Functions, backend: Backend, budget: Budget,
    ) -> Piece:  # fmt: skip
        """Find or make the piece for the values of ``env``; ``constants`` never change."""
        names = [name for name in env if name in self.needed and name not in constants]
        shapes = tuple(
            (name, mapped(env[name], lambda array: (array.shape, array.dtype), tuple))
            for name in names
        )
        with self._lock:
            required = self._required.get(shapes, frozenset())
            while True:
                values = tuple((name, _bytes_of(env[name])) for name in sorted(required))
                piece = self._pieces.get((shapes, values))
                if piece is not None:
                    self._pieces.move_to_end((shapes, values))
                    return piece
                known: dict[str, Value] = {
                    name: mapped(env[name], partial(_described, name, name in required))
                    for name in names
                }
                fixed = constant_tensors(
                    {name: data for name, data in constants.items() if name in self.needed}
                )
                traced = trace(self.nodes, {**fixed, **known}, functions, backend.compute, budget)
                more = traced.required & known.keys()
                if not more - required:
                    break
                required |= more
            self._required[shapes] = required
            self._required.move_to_end(shapes)
            if len(self._required) > PLANS_MAX:
                self._required.popitem(last=False)
            piece = Piece(backend, known, traced, outputs, budget.limits)
            self._pieces[shapes, values] = piece
            if len(self._pieces) > PLANS_MAX:
                self._pieces.popitem(last=False)
            return piece


class GraphRunner:
    """Runs one graph, and keeps its plans."""

    def __init__(
        self, graph: Graph, functions: Functions, backend: Backend, limits: Limits | None = None
    ) -> None:
        """Take over a graph and its functions; runs nothing."""
        self._graph = graph
        self._limits = limits or Limits()
        self._functions = functions
        self._backend = backend
        self._first = Stage(graph.nodes)
        self._inner: OrderedDict[int, GraphRunner] = OrderedDict()
        self._lock = threading.Lock()

    def _run_inner(self, graph: Graph, inputs: Mapping[str, Data], budget: Budget) -> list[Data]:
        budget.iterate()
        # the runner keeps its graph alive, so no other graph gets the same id
        with self._lock:
            value = self._inner.get(id(graph))
            if value is None:
                value = GraphRunner(graph, self._functions, self._backend, self._limits)
                self._inner[id(graph)] = value
                if len(self._inner) > GRAPHS_MAX:
                    self._inner.popitem(last=False)
            else:
                self._inner.move_to_end(id(graph))
        return value._run(inputs, budget)  # the same class

    def run(self, inputs: Mapping[str, Data]) -> list[Data]:
        """Run the graph on values by name, including those that it reads of an enclosing graph.

        Raises:
            EngineError: The graph cannot be run, or exceeds a limit; the message names the node.
        """
        with guarded(self._graph.name):
            return self._run(inputs, Budget(self._limits))

    def _run(self, inputs: Mapping[str, Data], budget: Budget) -> list[Data]:
        env: dict[str, Data] = {**self._graph.constants, **inputs}
        constants = {
            name: data for name, data in self._graph.constants.items() if name not in inputs
        }
        outputs = set(self._graph.outputs)
        stage: Stage | None = self._first
        while stage is not None and stage.nodes:
            piece = stage.piece(env, constants, outputs, self._functions, self._backend, budget)
            piece.run(env, budget)
            stage = self._run_control(piece.next, env, budget, progress=piece.plan is not None)
        missing = outputs - env.keys()
        if missing:
            raise EngineError(f"graph {self._graph.name!r}: no node makes {sorted(missing)}")
        return [env[name] for name in self._graph.outputs]

    def _run_control(
        self, stage: Stage | None, env: dict[str, Data], budget: Budget, *, progress: bool
    ) -> Stage | None:
        if stage is None:
            return None
        left = []
        run = partial(self._run_inner, budget=budget)
        for node in stage.nodes:
            rule = rules().get((node.domain, node.operator))
            is_control = rule is not None and rule.kind is Kind.CONTROL
            if is_control and node.needed <= env.keys():
                results = run_control(run, node, env, budget)
                env.update(
                    (name, data) for name, data in zip(node.outputs, results, strict=False) if name
                )
                progress = True
            else:
                left.append(node)
        if not progress:
            raise EngineError(f"{stage.nodes[0].title}: its inputs never become known")
        if len(left) == len(stage.nodes):
            return stage
        return stage.rest(tuple(left)) if left else None


def _elements(
    result: Mapping[Tensor, Array], copied: Callable[[Array], Array], tensor: Tensor
) -> Array:
    return result[tensor] if tensor.data is None else copied(tensor.data)


def _described(name: str, is_known: bool, array: Array) -> Tensor:
    return Tensor(array.shape, array.dtype, array if is_known else None, name)


def _bytes_of(data: Data) -> Any:
    return mapped(
        data,
        lambda array: (
            tuple(array.reshape(-1).tolist()) if array.dtype.kind == "O" else array.tobytes()
        ),
        tuple,
    )
