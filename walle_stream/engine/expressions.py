"""Tensor expressions of guests, on the engine: lowered, planned once, run in one call.

A request names operations on constants. The key of a plan is the structure of an independent part
of the request, without the elements of constants. Scripts repeat their expressions for each
batch, so each expression is lowered once. A model of the host cuts an expression: its inputs are
computed before the model runs, and its readers afterwards. Requests of many runs are computed side
by side, each as if it had come alone. Only models that take rows of several requests
(``run_many``) see them together.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from walle_stream.engine.components import Component, components
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.guest_rules import GUEST_RULES, check_size
from walle_stream.engine.module import Backend, Plan
from walle_stream.engine.program import Array, Program, Tensor
from walle_stream.engine.rules import native
from walle_stream.errors import ClusterError, EngineError, TensorError
from walle_stream.wire.graph import ITEM_BYTES, MAX_ELEMENTS, Constant, Graph

PLANS_MAX: Final = 128
"""Plans that an evaluator keeps; the least recently run plan is dropped."""

WORK_MAX_ELEMENTS: Final = 1 << 28
"""Largest number of elements that all nodes of one request may compute."""

CROSSING_MAX_BYTES: Final = 1 << 29
"""Largest number of bytes that requests of one crossing may make, temporary values apart."""

_KINDS: Final[Mapping[Any, tuple[str, Any]]] = {
    np.dtype(name): (name, np.dtype(name).newbyteorder("<")) for name in ITEM_BYTES
}
"""Name and wire form by dtype, since ``dtype.name`` takes 3 us."""

CROSSING_WORK_MAX_ELEMENTS: Final = 1 << 32
"""Largest number of elements that requests of one crossing may compute."""

type Model = Callable[..., Any]
"""Takes arrays, and returns an array, or a tuple or list of arrays."""


class EngineEvaluator:
    """Evaluates requests. Blocks; thread-safe if the models are."""

    def __init__(self, backend: Backend, models: Mapping[str, Model] | None = None) -> None:
        """Take over a backend and models by name; models must be pure functions of their inputs."""
        self._backend = backend
        self._models = models or {}
        self._plans: OrderedDict[Any, _Stage] = OrderedDict()
        self._lock = threading.Lock()

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request, in order.

        Raises:
            TensorError: An operator is unknown, shapes do not fit, or the request is too large.
            ClusterError: No actor is available to run a model.
        """
        return self.evaluate_all([graph])[0]

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        """Compute the requests of one crossing, in order, each as if it had come alone.

        Raises:
            TensorError: A request cannot be computed, or the requests together are too large.
        """
        results: dict[int, list[Array]] = {}
        room_bytes, work_left = CROSSING_MAX_BYTES, CROSSING_WORK_MAX_ELEMENTS
        for wave in _waves(graphs):
            requests = [_Request(graphs[number], results) for number in wave]
            jobs = [job for request in requests for job in request.jobs]
            for depth in range(1 + max((depth for job in jobs for depth in job.depths), default=0)):
                self._run_models(jobs, depth)
                for job in jobs:
                    job.values.update(self._run_stage(job, depth))
                left_bytes = room_bytes - sum(job.nbytes for job in jobs)
                work = sum(request.work for request in requests)
                if (left_bytes < 0 or work > work_left) and len(graphs) > 1:
                    raise TensorError("the requests together are too large: send each alone")
            room_bytes = left_bytes
            work_left -= work
            outputs = (request.outputs() for request in requests)
            results.update(zip(wave, outputs, strict=True))
        return [[_constant(value) for value in results[number]] for number in range(len(graphs))]

    def _run_stage(self, job: "_Job", depth: int) -> dict[int, Array]:
        nodes, values = job.component.nodes, job.values
        numbers = [
            number for number, node in enumerate(nodes)
            if job.depths[number] == depth and number not in values and node.operator != "model"
        ]  # fmt: skip
        if not numbers:
            return {}
        known = sorted({index for n in numbers for index in nodes[n].inputs if index in values})
        mine = set(numbers)
        wanted = sorted(
            mine & {*job.component.outputs,
                    *(index for n, node in enumerate(nodes) if n not in mine
                      for index in node.inputs)}
        )  # fmt: skip
        key = (
            tuple((n, nodes[n].operator, tuple(nodes[n].inputs), repr(nodes[n].parameters))
                  for n in numbers),
            tuple((n, values[n].dtype, values[n].shape) for n in known),
            tuple(wanted),
        )  # fmt: skip
        with self._lock:
            stage = self._plans.get(key)
            if stage is not None:
                self._plans.move_to_end(key)
        if stage is None:
            stage = self._lowered(job, numbers, known, wanted)
            with self._lock:
                self._plans[key] = stage
                if len(self._plans) > PLANS_MAX:
                    self._plans.popitem(last=False)
        job.request.work += stage.work
        if job.request.work > WORK_MAX_ELEMENTS:
            raise TensorError(f"a tensor request computes more than {WORK_MAX_ELEMENTS} elements")
        try:
            result = stage.plan.run([values[number] for number in known])
        except EngineError as error:
            raise TensorError(str(error)) from error
        return dict(zip(wanted, result, strict=True))

    def _lowered(
        self, job: "_Job", numbers: Sequence[int], known: Sequence[int], wanted: Sequence[int]
    ) -> "_Stage":
        values = job.values
        builder = Builder(self._backend.compute)
        inputs = [Tensor(values[n].shape, values[n].dtype, name=str(n)) for n in known]
        tensors = dict(zip(known, inputs, strict=True))
        work = 0
        for number in numbers:
            node, name = job.component.nodes[number], job.name(number)
            operands = [tensors[index] for index in node.inputs]
            rule = GUEST_RULES.get(node.operator)
            if rule is None:
                raise TensorError(f"{name}: there is no operator {node.operator!r}")
            builder.origin = str(number)
            try:
                work += check_size(node.operator, operands, node.parameters)
                result = rule(builder, operands, node.parameters)
            except (EngineError, ValueError, TypeError, IndexError, KeyError) as error:
                shapes = ", ".join(str(tensor.shape) for tensor in operands)
                raise TensorError(f"{name}: {node.operator} of shapes {shapes}: {error}") from error
            if result.dtype.name not in ITEM_BYTES:
                raise TensorError(f"{name}: {node.operator} gives {result.dtype.name}")
            if work > WORK_MAX_ELEMENTS:
                raise TensorError(
                    f"a tensor request computes more than {WORK_MAX_ELEMENTS} elements"
                )
            tensors[number] = result
        program = Program(inputs, [tensors[number] for number in wanted], builder.steps)
        return _Stage(self._backend.plan(program), work)

    def _run_models(self, jobs: Iterable["_Job"], depth: int) -> None:
        calls: dict[_Call, None] = {}
        for job in jobs:
            for number, node in enumerate(job.component.nodes):
                if node.operator == "model" and job.depths[number] == depth:
                    calls[_Call(job, number, self._model(job, number))] = None
        together: dict[str, list[_Call]] = {}
        for call in calls:
            if call.key not in call.job.models:
                # an empty list marks a call whose outputs come later, so it is made only once
                call.job.models[call.key] = []
                if hasattr(call.model, "run_many"):
                    together.setdefault(call.model_name, []).append(call)
                else:
                    call.job.models[call.key] = call.outputs()
        for some in together.values():
            for call, outputs in zip(some, _outputs_together(some), strict=True):
                call.job.models[call.key] = outputs
        for call in calls:
            call.job.values[call.number] = call.result()

    def _model(self, job: "_Job", number: int) -> Model:
        name = job.component.nodes[number].parameters.get("name")
        model = self._models.get(name) if isinstance(name, str) else None
        if model is None:
            known = ", ".join(sorted(self._models)) or "none"
            raise TensorError(
                f"{job.name(number)}: there is no model {name!r} (spec.models): the pipeline has "
                f"{known}"
            )
        return model


class _Request:
    def __init__(self, graph: Graph, before: Mapping[int, list[Array]]) -> None:
        self.work = 0
        self._outputs = graph.outputs
        values = {
            number: native(
                np.frombuffer(constant.data, np.dtype(constant.dtype).newbyteorder("<"))
            ).reshape(constant.shape)
            for number, constant in graph.constants.items()
        }
        for number, (request, output) in (graph.earlier or {}).items():
            values[number] = before[request][output]
        self.jobs = [_Job(self, component, values) for component in components(graph)]

    def outputs(self) -> list[Array]:
        values = {
            job.component.numbers[number]: job.values[number]
            for job in self.jobs for number in job.component.outputs
        }  # fmt: skip
        return [values[number] for number in self._outputs]


class _Job:
    def __init__(
        self, request: _Request, component: Component, values: Mapping[int, Array]
    ) -> None:  # fmt: skip
        self.request = request
        self.component = component
        self.depths = component.depths
        self.values = {
            at: values[number] for at, number in enumerate(component.numbers) if number in values
        }
        self.models: dict[str, list[Array]] = {}
        self._input_count = len(self.values)

    @property
    def nbytes(self) -> int:
        # bytes of the values computed so far
        return sum(array.nbytes for array in [*self.values.values()][self._input_count :])

    def name(self, number: int) -> str:
        # the name of a node in a script's errors
        return f"node {self.component.numbers[number]}"


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    job: _Job
    number: int
    model: Model

    @property
    def model_name(self) -> str:
        return str(self.job.component.nodes[self.number].parameters.get("name"))

    @property
    def key(self) -> str:
        return f"{self.model_name} {self.job.component.nodes[self.number].inputs}"

    @property
    def inputs(self) -> list[Array]:
        # a model may write into its inputs
        node = self.job.component.nodes[self.number]
        return [self.job.values[number].copy() for number in node.inputs]

    def result(self) -> Array:
        # the output of the model that the node asks for; the model has run
        node, outputs = self.job.component.nodes[self.number], self.job.models[self.key]
        title = f"{self.job.name(self.number)}: model {self.model_name!r}"
        output = node.parameters.get("output")
        if type(output) is not int or not 0 <= output < len(outputs):
            raise TensorError(f"{title} has {len(outputs)} outputs, and no output {output!r}")
        result = outputs[output]
        # outputs that no node asks for are not checked
        if result.dtype not in _KINDS and result.dtype.name not in ITEM_BYTES:
            raise TensorError(f"{title} gives {result.dtype.name}")
        if result.size > MAX_ELEMENTS:
            raise TensorError(f"{title} gives too many elements: {result.size}")
        return result

    def outputs(self) -> list[Array]:
        # outputs of the model, run for this node alone
        inputs, run_many = self.inputs, getattr(self.model, "run_many", None)
        try:
            result = run_many([inputs])[0] if run_many else self.model(*inputs)
        except ClusterError:
            raise  # not the script's fault
        except Exception as error:
            shapes = ", ".join(str(array.shape) for array in inputs)
            raise TensorError(
                f"{self.job.name(self.number)}: model {self.model_name!r} of shapes {shapes}: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        return [np.asarray(y) for y in (result if isinstance(result, (tuple, list)) else (result,))]


@dataclass(frozen=True, slots=True)
class _Stage:
    plan: Plan
    work: int


def _outputs_together(calls: Sequence[_Call]) -> list[list[Array]]:
    run_many: Any = calls[0].model.run_many  # type: ignore[attr-defined] # it has one
    if len(calls) > 1:
        try:
            return [list(outputs) for outputs in run_many([call.inputs for call in calls])]
        except ClusterError:
            raise
        except Exception:  # noqa: BLE001, S110 - any; the single calls below find the faulty one
            pass
    return [call.outputs() for call in calls]


def _waves(graphs: Sequence[Graph]) -> list[list[int]]:
    # a request comes in a later wave than the requests whose outputs it needs
    waves: list[list[int]] = []
    wave_of: list[int] = []
    for number, graph in enumerate(graphs):
        needed = (graph.earlier or {}).values()
        wave = max((wave_of[request] + 1 for request, _ in needed), default=0)
        wave_of.append(wave)
        if wave == len(waves):
            waves.append([])
        waves[wave].append(number)
    return waves


def _constant(value: Array) -> Constant:
    kind = _KINDS.get(value.dtype)
    if kind is None:
        # a dtype of another byte order
        kind = (value.dtype.name, np.dtype(value.dtype.name).newbyteorder("<"))
    name, little = kind
    return Constant(name, value.shape, np.ascontiguousarray(value, little).tobytes())
