"""Profiles of a model's time by node, by operator and by step.

A profile runs the model with a backend that reports each step. Reading the clock takes about
0.1 us per step, so a model with many tiny steps seems slower than it is.
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
from walle_stream.engine.program import Array, Program, Step, Tensor
from walle_stream.engine.values import Data
from walle_stream.errors import EngineError


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one program, or of several that run one after the other."""

    steps: int = 0
    rasters: int = 0
    moved_bytes: int = 0
    """Bytes that rasters write, filled elements included."""
    peak_bytes: int = 0
    """Peak memory of inputs and computed tensors, without constants."""

    def __add__(self, other: "Statistics") -> "Statistics":
        """Add the statistics of a program that runs afterwards; the peak is the larger one."""
        return Statistics(
            self.steps + other.steps,
            self.rasters + other.rasters,
            self.moved_bytes + other.moved_bytes,
            max(self.peak_bytes, other.peak_bytes),
        )


def _traffic_bytes(step: Step) -> int:
    """Count the bytes of a step's inputs and outputs; for a raster, twice the bytes that it moves.

    A broadcast element counts once per read.
    """
    if step.operator is Operator.RASTER:
        return 2 * _moved_bytes(step)
    return sum(tensor.nbytes for tensor in (*step.inputs, *step.outputs) if tensor.has_shape)


def _moved_bytes(step: Step) -> int:
    item = step.output.dtype.itemsize
    covered = sum(prod(region.size) for region in step.regions)
    size = step.output.size if step.output.has_shape else covered
    # elements outside all regions are filled
    return max(covered, size) * item


def _living_peak(program: Program) -> int:
    """Return the peak bytes of a program if each tensor has its own memory until its last reader.

    Tensors whose shapes depend on values do not count.
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
    """Time of a group of steps, averaged over the runs."""

    name: str
    """The atomic operator or raster of a step, or the ONNX operator of a group."""
    calls: float
    """Kernel calls in a run; a step that is cut into tiles makes one call per tile."""
    bytes: float
    """Bytes read and written in a run."""
    ms: float
    share: float
    """Fraction of the time of a run, 0 to 1."""


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """Times of one node of the model."""

    name: str
    """Name of the node, or of its first output."""
    operator: str
    """The ONNX operator, with its domain unless that is ONNX's own."""
    total: Timing
    steps: tuple[Timing, ...]
    """Times by operator of the steps, the longest first."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of runs of one model with one set of inputs."""

    model: str
    backend: str
    repeats: int
    planning_ms: float
    """Time of the first run, which lowers and plans."""
    mean_ms: float
    """Mean time of the other runs, to which shares refer."""
    median_ms: float
    nodes: tuple[NodeTiming, ...]
    """Times by node, the longest first."""
    other: Timing
    """Time outside kernels: copies of inputs and outputs, look-ups of plans, control flow."""
    stages: Mapping[str, Statistics]
    """Statistics of programs: ``lowered`` by the rules, ``merged`` by the passes, and ``planned``
    for the backend. The reference backend has only the first."""

    def operators(self) -> list[Timing]:
        """Return the sums by ONNX operator, the longest first; ``calls`` are kernel calls."""
        return _by_name((node.operator, node.total) for node in self.nodes)

    def kernels(self) -> list[Timing]:
        """Return the sums by atomic operator and raster, the longest first."""
        return _by_name((step.name, step) for node in self.nodes for step in node.steps)

    def to_builtins(self) -> dict[str, Any]:
        """Return the profile as builtins for JSON."""
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
            raise EngineError(f"backend {self.name!r} does not report steps: no profile")
        self._count("lowered", program.steps, _living_peak(program))
        elision, placement = getattr(plan, "elision", None), getattr(plan, "placement", None)
        if isinstance(elision, Elision) and isinstance(placement, Placement):
            self._count("merged", plan.program.steps, _living_peak(plan.program))
            # rasters read in place move nothing, and the arena is the peak
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
    """Time the steps of a model on checked inputs. Blocks; shares no plans with other runners.

    ``repeats`` runs are timed, after one that plans; ``limits`` apply to each run.

    Raises:
        EngineError: The model cannot be run, or ``repeats`` is not a positive integer.
    """
    if type(repeats) is not int or repeats < 1:
        raise EngineError(f"repeats={repeats!r} is not a whole number from 1")
    watching = _Watching(backend)
    runner = GraphRunner(model.graph, model.functions, watching, limits)
    times_ms = [_timed(runner, inputs)]
    for times in (watching.ms, watching.calls, watching.runs):
        times.clear()
    # a plan that a later run makes, since values differ, counts for that run
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
    # sums by name, the longest first
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
