"""Tensor expressions of guests, on the engine: lowered, planned once, run in one call.

A request names operations on constants. Its structure, without the constants'
elements, is the key of a plan: a script that asks for the same expression again,
as scripts do for each batch, pays for lowering once. A model of the host cuts an
expression: what it reads is run before it, what reads it behind it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.guest_rules import GUEST_RULES, check_size
from walle_stream.engine.module import Backend, Plan
from walle_stream.engine.program import Array, Program, Tensor
from walle_stream.errors import ClusterError, EngineError, TensorError
from walle_stream.wire.graph import ITEM_BYTES, MAX_ELEMENTS, Constant, Graph

PLANS_MAX: Final = 128
"""Plans that an evaluator keeps; the one that was not run for longest goes."""

WORK_MAX_ELEMENTS: Final = 1 << 28
"""Most elements that one request may compute, all nodes together."""

type Model = Callable[..., Any]
"""Arrays in; out an array, or a tuple or list of them."""


class EngineEvaluator:
    """Evaluates requests. Thread-safe if the models are; blocks."""

    def __init__(self, backend: Backend, models: Mapping[str, Model] | None = None) -> None:
        """Take over.

        Args:
            backend: That plans and runs.
            models: By name; what they return depends on their inputs alone.
        """
        self._backend = backend
        self._models = models or {}
        self._plans: OrderedDict[Any, _Stage] = OrderedDict()
        self._lock = threading.Lock()

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request.

        Args:
            graph: Checked by ``wire.tensors``.

        Returns:
            One value per output, in order.

        Raises:
            TensorError: An unknown operator, shapes that do not fit, or too much.
            ClusterError: Nobody is there to run a model.
        """
        depths = _depths(graph)
        values: dict[int, Array] = {
            number: _array(constant) for number, constant in graph.constants.items()
        }
        made: dict[str, list[Array]] = {}
        work = [0]
        for depth in range(max(depths, default=0) + 1):
            for number, node in enumerate(graph.nodes):
                if depths[number] == depth and node.operator == "model":
                    values[number] = self._run_model(graph, number, values, made)
            values.update(self._run_stage(graph, depths, depth, values, work))
        return [_constant(values[each]) for each in graph.outputs]

    def _run_stage(
        self, graph: Graph, depths: Sequence[int], depth: int, values: dict[int, Array],
        work: list[int],
    ) -> dict[int, Array]:  # fmt: skip
        numbers = [
            number for number, node in enumerate(graph.nodes)
            if depths[number] == depth and number not in values and node.operator != "model"
        ]  # fmt: skip
        if not numbers:
            return {}
        given = sorted({each for n in numbers for each in graph.nodes[n].inputs if each in values})
        mine = set(numbers)
        wanted = sorted(
            mine & {*graph.outputs,
                    *(each for n, node in enumerate(graph.nodes) if n not in mine
                      for each in node.inputs)}
        )  # fmt: skip
        nodes = [graph.nodes[number] for number in numbers]
        key = (
            tuple((n, node.operator, tuple(node.inputs), repr(node.parameters))
                  for n, node in zip(numbers, nodes, strict=True)),
            tuple((n, values[n].dtype, values[n].shape) for n in given),
            tuple(wanted),
        )  # fmt: skip
        with self._lock:
            stage = self._plans.get(key)
            if stage is not None:
                self._plans.move_to_end(key)
        if stage is None:
            stage = self._lowered(graph, numbers, given, wanted, values)
            with self._lock:
                self._plans[key] = stage
                if len(self._plans) > PLANS_MAX:
                    self._plans.popitem(last=False)
        work[0] += stage.work
        if work[0] > WORK_MAX_ELEMENTS:
            raise TensorError(f"a tensor request computes more than {WORK_MAX_ELEMENTS} elements")
        try:
            found = stage.plan.run([values[number] for number in given])
        except EngineError as error:
            raise TensorError(str(error)) from error
        return dict(zip(wanted, found, strict=True))

    def _lowered(
        self, graph: Graph, numbers: Sequence[int], given: Sequence[int],
        wanted: Sequence[int], values: Mapping[int, Array],
    ) -> "_Stage":  # fmt: skip
        builder = Builder(self._backend.compute)
        inputs = [Tensor(values[n].shape, values[n].dtype, name=str(n)) for n in given]
        tensors = dict(zip(given, inputs, strict=True))
        work = 0
        for number in numbers:
            node = graph.nodes[number]
            taken = [tensors[each] for each in node.inputs]
            rule = GUEST_RULES.get(node.operator)
            if rule is None:
                raise TensorError(f"node {number}: there is no operator {node.operator!r}")
            builder.origin = str(number)
            try:
                work += check_size(node.operator, taken, node.parameters)
                made = rule(builder, taken, node.parameters)
            except (EngineError, ValueError, TypeError, IndexError, KeyError) as error:
                shapes = ", ".join(str(each.shape) for each in taken)
                raise TensorError(
                    f"node {number}: {node.operator} of shapes {shapes}: {error}"
                ) from error
            if made.dtype.name not in ITEM_BYTES:
                raise TensorError(f"node {number}: {node.operator} gives {made.dtype.name}")
            if work > WORK_MAX_ELEMENTS:
                raise TensorError(
                    f"a tensor request computes more than {WORK_MAX_ELEMENTS} elements"
                )
            tensors[number] = made
        program = Program(inputs, [tensors[number] for number in wanted], builder.steps)
        return _Stage(self._backend.plan(program), work)

    def _run_model(
        self, graph: Graph, number: int, values: Mapping[int, Array], made: dict[str, list[Array]]
    ) -> Array:
        node = graph.nodes[number]
        name, output = node.parameters.get("name"), node.parameters.get("output")
        model = self._models.get(name) if isinstance(name, str) else None
        if model is None:
            known = ", ".join(sorted(self._models)) or "none"
            raise TensorError(
                f"node {number}: there is no model {name!r} (spec.models): the pipeline has {known}"
            )
        key = f"{name} {node.inputs}"
        outputs = made.get(key)
        if outputs is None:
            # a model may write into what it is given
            inputs = [values[each].copy() for each in node.inputs]
            outputs = made[key] = _outputs(number, str(name), model, inputs)
        if type(output) is not int or not 0 <= output < len(outputs):
            raise TensorError(
                f"node {number}: model {name!r} has {len(outputs)} outputs, not a number {output!r}"
            )
        found = outputs[output]
        # an output that nobody asks for may be anything
        if found.dtype.name not in ITEM_BYTES:
            raise TensorError(f"node {number}: model {name!r} gives {found.dtype.name}")
        if found.size > MAX_ELEMENTS:
            raise TensorError(
                f"node {number}: model {name!r} gives {found.size} elements: too many"
            )
        return found


@dataclass(frozen=True, slots=True)
class _Stage:
    plan: Plan
    work: int


def _depths(graph: Graph) -> list[int]:
    """Count the models that each node waits for."""
    depths: list[int] = []
    for node in graph.nodes:
        depth = max((depths[each] for each in node.inputs), default=0)
        depths.append(depth + (node.operator == "model"))
    return depths


def _outputs(number: int, name: str, model: Model, inputs: list[Array]) -> list[Array]:
    try:
        given = model(*inputs)
    except ClusterError:
        raise  # no matter of what the script asks
    except Exception as error:
        shapes = ", ".join(str(each.shape) for each in inputs)
        raise TensorError(
            f"node {number}: model {name!r} of shapes {shapes}: {type(error).__name__}: {error}"
        ) from error
    several = given if isinstance(given, (tuple, list)) else (given,)
    return [np.asarray(each) for each in several]


def _array(constant: Constant) -> Array:
    data = np.frombuffer(constant.data, np.dtype(constant.dtype).newbyteorder("<"))
    return data.reshape(constant.shape).astype(np.dtype(constant.dtype), copy=False)


def _constant(value: Array) -> Constant:
    data = np.ascontiguousarray(value, np.dtype(value.dtype.name).newbyteorder("<"))
    return Constant(value.dtype.name, value.shape, data.tobytes())
