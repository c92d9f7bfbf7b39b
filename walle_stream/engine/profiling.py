"""Where the time of a model goes: by node, by operator, by step.

A profile runs the model with a backend that tells of each step that it has run.
Asking for the time costs about a tenth of a microsecond a step, so models of very
many tiny steps seem slower than they are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from statistics import median
from typing import Any

from walle_stream.clock import monotonic_ms
from walle_stream.engine.graph import Model
from walle_stream.engine.limits import Limits
from walle_stream.engine.module import Backend, GraphRunner
from walle_stream.engine.operators import Operator
from walle_stream.engine.planning.elision import Elision, is_loose
from walle_stream.engine.planning.placement import Placement
from walle_stream.engine.program import Array, Data, Program, Step, Tensor
from walle_stream.errors import EngineError


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one program, or of several that are run one after the other."""

    steps: int = 0
    rasters: int = 0
    moved_bytes: int = 0
    """That rasters write: elements of their regions, and of what they fill."""
    peak_bytes: int = 0
    """Most memory of inputs and made tensors at once, constants apart."""

    def __add__(self, other: "Statistics") -> "Statistics":
        """Add what is done one after the other: the peak is that of one of both."""
        return Statistics(
            self.steps + other.steps,
            self.rasters + other.rasters,
            self.moved_bytes + other.moved_bytes,
            max(self.peak_bytes, other.peak_bytes),
        )


def _traffic_bytes(step: Step) -> int:
    """Count the bytes of a step's inputs and outputs, of a raster twice what it moves.

    An element that is spread counts as often as it is read.
    """
    if step.operator is Operator.RASTER:
        return 2 * _moved_bytes(step)
    return sum(tensor.nbytes for tensor in (*step.inputs, *step.outputs) if tensor.has_shape)


def _moved_bytes(step: Step) -> int:
    item = step.output.dtype.itemsize
    covered = sum(prod(region.size) for region in step.regions)
    size = step.output.size if step.output.has_shape else covered
    # what no region covers is filled
    return max(covered, size) * item


def _living_peak(program: Program) -> int:
    """Count bytes of a program as it stands: a tensor has memory of its own until its last reader.

    Tensors whose shapes depend on values are not among them.
    """
    last: dict[Tensor, int] = {}
    for number, step in enumerate(program.steps):
        last.update(dict.fromkeys(step.inputs, number))
    last.update(dict.fromkeys(program.outputs, len(program.steps)))
    living = sum(_size(tensor) for tensor in program.inputs)
    peak = living
    for number, step in enumerate(program.steps):
        living += sum(_size(tensor) for tensor in step.outputs)
        peak = max(peak, living)
        ending = {*step.inputs, *step.outputs}
        living -= sum(_size(tensor) for tensor in ending if last.get(tensor, number) == number)
    return peak


def _size(tensor: Tensor) -> int:
    return 0 if is_loose(tensor) or tensor.data is not None else tensor.nbytes


@dataclass(frozen=True, slots=True)
class Timing:
    """What some steps took, on average of the runs."""

    name: str
    """Of a step: its atomic operator, or raster. Of a group: its ONNX operator."""
    calls: float
    """Of kernels in a run; a step that is cut into tiles is as many."""
    bytes: float
    """Read and written in a run."""
    ms: float
    share: float
    """Of the time of a run, 0 to 1."""


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """Of one node of the model."""

    name: str
    """Its own, or that of its first output."""
    operator: str
    """ONNX's, with its domain where it is another."""
    total: Timing
    steps: tuple[Timing, ...]
    """By operator of the steps, the longest first."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Of runs of one model with one set of inputs."""

    model: str
    backend: str
    repeats: int
    planning_ms: float
    """The first run, which lowers and plans."""
    mean_ms: float
    """Of the others; shares are of this."""
    median_ms: float
    nodes: tuple[NodeTiming, ...]
    """The longest first."""
    other: Timing
    """Inputs and outputs copied, plans looked up, control flow."""
    stages: Mapping[str, Statistics]
    """Programs ``lowered``, as rules make them, ``merged``, after the passes, and ``planned``, as
    the backend runs them; the reference backend has the first alone."""

    def operators(self) -> list[Timing]:
        """Add the nodes up by ONNX operator, the longest first; ``calls`` are those of kernels."""
        return _by_name((node.operator, node.total) for node in self.nodes)

    def kernels(self) -> list[Timing]:
        """Add the steps up by atomic operator and raster, the longest first."""
        return _by_name((step.name, step) for node in self.nodes for step in node.steps)

    def to_builtins(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {
            "format": 1,
            **asdict(self),
            "operators": [asdict(timing) for timing in self.operators()],
            "kernels": [asdict(timing) for timing in self.kernels()],
        }


class _Watching:
    def __init__(self, inner: Backend) -> None:
        self.name, self.compute = inner.name, inner.compute
        self._inner = inner
        self.operators: dict[str, str] = {}
        self.stages: dict[str, Statistics] = {}
        self.ms: dict[Step, float] = defaultdict(float)
        self.calls: dict[Step, int] = defaultdict(int)
        self.runs: dict[Step, int] = defaultdict(int)

    def plan(self, program: Program) -> "_WatchedPlan":
        self.operators.update(program.operators)
        plan: Any = self._inner.plan(program)
        if not hasattr(plan, "program"):
            raise EngineError(f"backend {self.name!r} does not tell of its steps: no profile")
        self._count("lowered", program.steps, _living_peak(program))
        elision, placement = getattr(plan, "elision", None), getattr(plan, "placement", None)
        if isinstance(elision, Elision) and isinstance(placement, Placement):
            self._count("merged", plan.program.steps, _living_peak(plan.program))
            # rasters read in place move nothing, the arena is the peak
            self._count("planned", elision.steps, placement.arena_bytes)
        return _WatchedPlan(plan, self)

    def _count(self, stage: str, steps: list[Step], peak_bytes: int) -> None:
        rasters = [step for step in steps if step.operator is Operator.RASTER]
        moved_bytes = sum(_moved_bytes(step) for step in rasters)
        counted = Statistics(len(steps), len(rasters), moved_bytes, peak_bytes)
        self.stages[stage] = self.stages.get(stage, Statistics()) + counted


class _WatchedPlan:
    def __init__(self, plan: Any, watching: _Watching) -> None:
        self._plan = plan
        self._watching = watching

    @property
    def nbytes(self) -> int:
        return int(self._plan.nbytes)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        watching = self._watching
        steps: set[Step] = set()

        def watch(step: Step, ms: float) -> None:
            steps.add(step)
            watching.ms[step] += ms
            watching.calls[step] += 1

        result: list[Array] = self._plan.run(inputs, watch)
        for step in steps:
            watching.runs[step] += 1
        return result


def profile_model(
    model: Model, inputs: Mapping[str, Data], backend: Backend, repeats: int,
    limits: Limits | None = None,
) -> Profile:  # fmt: skip
    """Time the steps of a model, with checked inputs. Blocks; everything that it keeps is its own.

    ``repeats`` runs are timed, after one that plans; ``limits`` are of each.

    Raises:
        EngineError: The model cannot be run, or there is nothing to repeat.
    """
    if type(repeats) is not int or repeats < 1:
        raise EngineError(f"repeats={repeats!r} is no whole number from 1")
    watching = _Watching(backend)
    runner = GraphRunner(model.graph, model.functions, watching, limits)
    times_ms = [_timed(runner, inputs)]
    for times in (watching.ms, watching.calls, watching.runs):
        times.clear()
    # plans that a later run makes anew, for what values decide, are of that run
    times_ms += [_timed(runner, inputs) for _ in range(repeats)]
    mean_ms = sum(times_ms[1:]) / repeats
    nodes = _nodes(watching, repeats, mean_ms)
    rest_ms = max(0.0, mean_ms - sum(node.total.ms for node in nodes))
    other = Timing("other", 0, 0, rest_ms, _share(rest_ms, mean_ms))
    return Profile(
        model.graph.name, backend.name, repeats, times_ms[0], mean_ms, median(times_ms[1:]),
        nodes, other, watching.stages,
    )  # fmt: skip


def _timed(runner: GraphRunner, inputs: Mapping[str, Data]) -> float:
    start_ms = monotonic_ms()
    runner.run(inputs)
    return monotonic_ms() - start_ms


def _nodes(watching: _Watching, repeats: int, mean_ms: float) -> tuple[NodeTiming, ...]:
    steps: dict[str, list[Timing]] = defaultdict(list)
    for step, ms in watching.ms.items():
        moved = _traffic_bytes(step) * watching.runs[step] / repeats
        calls, ms_a_run = watching.calls[step] / repeats, ms / repeats
        timing = Timing(str(step.operator), calls, moved, ms_a_run, _share(ms_a_run, mean_ms))
        steps[step.origin].append(timing)
    nodes = []
    for origin, timings in steps.items():
        operator = watching.operators.get(origin, "unknown")
        kinds = _by_name((timing.name, timing) for timing in timings)
        nodes.append(NodeTiming(origin, operator, _sum(operator, kinds), tuple(kinds)))
    return tuple(sorted(nodes, key=lambda node: -node.total.ms))


def _by_name(timings: Iterable[tuple[str, Timing]]) -> list[Timing]:
    # added up by name, the longest first
    groups: dict[str, list[Timing]] = defaultdict(list)
    for name, timing in timings:
        groups[name].append(timing)
    return sorted((_sum(*group) for group in groups.items()), key=lambda timing: -timing.ms)


def _sum(name: str, timings: Sequence[Timing]) -> Timing:
    columns = zip(
        *((timing.calls, timing.bytes, timing.ms, timing.share) for timing in timings), strict=True
    )
    return Timing(name, *map(sum, columns))


def _share(ms: float, whole_ms: float) -> float:
    return ms / whole_ms if whole_ms > 0 else 0.0
