"""Lowers one piece of a graph: all nodes that can be lowered with the known values.

The tracer walks the nodes in order. The rule of a node lowers it if its inputs are described. If a
rule asks for elements or a shape that only a run gives, the node is deferred, with all readers of
its outputs. Control flow is deferred too. The remaining nodes are lowered after the piece has run
(``engine.module``), so a graph is cut only where it must be.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from walle_stream.engine.graph import Function, Graph, Node, OperatorKey
from walle_stream.engine.limits import Budget, Limits
from walle_stream.engine.lowering.builder import Builder, Compute, ValueUnknown
from walle_stream.engine.lowering.flatten import flattened_branch, flattened_call
from walle_stream.engine.lowering.registry import Call, Kind, Stages, Value, rules
from walle_stream.engine.program import Array, ShapeUnknown, Tensor
from walle_stream.engine.values import Maps
from walle_stream.errors import EngineError, LoweringError

type Functions = Mapping[OperatorKey, Function]


@dataclass(slots=True)
class Traced:
    """The lowered part of a graph, and the remaining nodes."""

    builder: Builder
    values: dict[str, Value]
    remaining: list[Node] = field(default_factory=list)
    required: set[str] = field(default_factory=set)
    """Names of values whose elements a rule asked for."""
    reason: str = ""
    """Reason why the first of ``remaining`` was deferred."""
    operators: dict[str, str] = field(default_factory=dict)
    """Operators of the lowered nodes by the origin of their steps."""
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of the lowered nodes in messages, by the origin of their steps."""


def trace(
    nodes: Sequence[Node], known: Mapping[str, Value], functions: Functions, compute: Compute,
    budget: Budget | None = None,
) -> Traced:  # fmt: skip
    """Lower nodes in order, as far as the values known by name allow.

    ``functions`` are defined by the model, ``compute`` runs one step, and ``budget`` belongs to the
    run.

    Raises:
        EngineError: A rule refuses its node, or a limit is exceeded; the message names the node.
    """
    tracer = _Tracer(known, functions, compute, budget or Budget(Limits()))
    tracer.trace(nodes)
    return tracer.traced


class _Tracer:
    def __init__(
        self, known: Mapping[str, Value], functions: Functions, compute: Compute, budget: Budget
    ) -> None:
        self.traced = Traced(Builder(compute, budget.limits), dict(known))
        self._functions = functions
        self._budget = budget
        self._late: set[str] = set()
        self._placed = 0

    def trace(self, nodes: Sequence[Node]) -> None:
        waiting, count, most = deque(nodes), 0, self._budget.limits.nodes
        while waiting:
            node = waiting.popleft()
            self._budget.check_time()
            count += 1
            if count > most:
                raise EngineError(
                    f"{node.title}: the graph has more than {most} nodes with the functions that"
                    " it calls (Limits.nodes)"
                )
            waiting.extendleft(reversed(self._next(node)))

    def _next(self, node: Node) -> Sequence[Node]:
        """Lower a node, defer it, or return the nodes that replace it."""
        traced = self.traced
        called = self._functions.get(node.key)
        if called is not None:
            return flattened_call(node, called, self._prefix(node))
        if node.needed & self._late:
            return self._put_off(node)
        chosen = _chosen_branch(node, traced)
        if chosen is not None:
            nodes, constants = flattened_branch(node, chosen, self._prefix(node))
            for name, data in constants.items():
                traced.values[name] = traced.builder.constant(data, name=name)
            return nodes
        count = len(traced.builder.steps)
        try:
            return _lower(node, traced)
        except (ShapeUnknown, ValueUnknown, _Cut) as signal:
            required: set[str] = set()
            if isinstance(signal, ValueUnknown):
                required = _asked_names(node, traced, signal.tensor, count)
            traced.required |= required
            traced.reason = traced.reason or _reason(signal, required)
            del traced.builder.steps[count:]
            return self._put_off(node)

    def _put_off(self, node: Node) -> Sequence[Node]:
        self.traced.remaining.append(node)
        self._late.update(name for name in node.outputs if name)
        return ()

    def _prefix(self, node: Node) -> str:
        # the output's name keeps the prefix unique, although each piece counts from 1
        self._placed += 1
        return f"{node.first_output or node.name}#{self._placed}/"


class _Cut(Exception):  # noqa: N818  # a signal, no error
    pass


def _reason(signal: ShapeUnknown | ValueUnknown | _Cut, required: set[str]) -> str:
    if isinstance(signal, ValueUnknown):
        listed = ", ".join(map(repr, sorted(required))) or "a value"
        return f"its outputs' shapes depend on the elements of {listed}"
    if isinstance(signal, ShapeUnknown):
        return "the shape of one of its inputs depends on values"
    return "it is control flow, which depends on values"


def _asked_names(node: Node, traced: Traced, required: Tensor, count: int) -> set[str]:
    # a rule may ask for an output of its own steps: find the inputs on which that output depends
    wanted = {required}
    for step in reversed(traced.builder.steps[count:]):
        if wanted.intersection(step.outputs):
            wanted.update(step.inputs)
    return {
        name
        for name in node.inputs
        if name and wanted.intersection(tensors_of(traced.values.get(name)))
    }


def tensors_of(value: Value) -> list[Tensor]:
    """Return the tensors of a value: a tensor itself, those of a sequence in order, or none."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Maps):
        return [value.keys, value.values]
    return [] if value is None else [tensor for element in value for tensor in tensors_of(element)]


def constant_tensors(constants: Mapping[str, Array]) -> dict[str, Value]:
    """Describe constants by name, with their elements."""
    return {name: Tensor(data.shape, data.dtype, data, name) for name, data in constants.items()}


def _chosen_branch(node: Node, traced: Traced) -> Graph | None:
    if node.operator != "If" or node.domain:
        return None
    condition = traced.values.get(node.inputs[0]) if node.inputs else None
    if not isinstance(condition, Tensor) or condition.data is None or condition.size != 1:
        return None
    branch = node.attributes.get("then_branch" if condition.data.reshape(-1)[0] else "else_branch")
    # run_control refuses a branch that is missing or has too few outputs
    if not isinstance(branch, Graph) or len(branch.outputs) < len(node.outputs):
        return None
    return branch


def _lower(node: Node, traced: Traced) -> tuple[Node, ...]:
    rule = rules().get((node.domain, node.operator))
    if rule is None:
        raise LoweringError(
            f"{node.title}: there is no such operator; export the model with another opset,"
            " or without it (walle engine operators lists what there is)"
        )
    if rule.kind is Kind.CONTROL:
        raise _Cut
    try:
        inputs = tuple(traced.values[name] if name else None for name in node.inputs)
    except KeyError as error:
        raise LoweringError(f"{node.title}: no node makes its input {error}") from error
    origin = node.name or node.first_output
    traced.builder.origin = origin
    traced.titles[origin] = node.title
    traced.operators[origin] = node.qualified_operator
    try:
        result = rule.lower(Call(traced.builder, node, inputs))
    except EngineError as error:
        raise type(error)(f"{node.title}: {error.message}") from error
    if isinstance(result, Stages):
        return result.nodes
    results = result if isinstance(result, tuple) else (result,)
    if any(node.outputs[len(results) :]):
        raise LoweringError(f"{node.title}: {len(node.outputs)} outputs, not {len(results)}")
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            traced.values[name] = value
    return ()
