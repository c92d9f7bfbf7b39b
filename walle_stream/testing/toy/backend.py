"""The toy backend: it runs lowered programs step by step over lists."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

from walle_stream.engine.backends.text import compute_text
from walle_stream.engine.operators import (
    ARG_REDUCTION,
    BINARY,
    HOST,
    REDUCTION,
    UNARY,
    Operator,
)
from walle_stream.engine.program import Array, Program, Step, Tensor
from walle_stream.errors import EngineError
from walle_stream.testing.toy.binary import binary, select
from walle_stream.testing.toy.conversion import bitcast, cast
from walle_stream.testing.toy.draws import draw
from walle_stream.testing.toy.elements import Value, read, written
from walle_stream.testing.toy.order import argsort, nonzero, put, take
from walle_stream.testing.toy.products import matmul
from walle_stream.testing.toy.raster import raster
from walle_stream.testing.toy.reductions import arg, reduction
from walle_stream.testing.toy.unary import unary

type Kernel = Callable[[Sequence[Value], Mapping[str, Any]], Value]

WORK_MAX: Final = 1 << 29
"""Limit of the elements that a run makes and moves, and of the products that it adds up."""

KERNELS: Final[Mapping[Operator, Kernel]] = {
    Operator.RASTER: raster,
    **{each: unary(each) for each in UNARY - {Operator.CAST, Operator.BITCAST}},
    Operator.CAST: cast,
    Operator.BITCAST: bitcast,
    **{each: binary(each) for each in BINARY},
    Operator.SELECT: select,
    **{each: reduction(each) for each in REDUCTION},
    **{each: arg(each) for each in ARG_REDUCTION},
    Operator.MATMUL: matmul,
    Operator.ARGSORT: argsort,
    Operator.TAKE: take,
    Operator.PUT: put,
    Operator.NONZERO: nonzero,
    Operator.RANDOM: draw,
}
"""Kernels by operator: all that a backend needs."""


class ToyBackend:
    """A backend with plans in plain Python. Thread-safe."""

    name = "toy"

    def plan(self, program: Program) -> "ToyPlan":
        """Return a plan of a program; see ``engine.module.Backend``."""
        return ToyPlan(program)

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``engine.backends.reference``."""
        return written(_run(step, [read(each) for each in inputs]))


class ToyPlan:
    """A plan that runs its program unchanged. Thread-safe; ``run`` blocks."""

    def __init__(self, program: Program) -> None:
        """Prepare the constants of a program.

        Raises:
            EngineError: The program has more work than ``WORK_MAX``.
        """
        work = sum(_work(step) for step in program.steps)
        if work > WORK_MAX:
            raise EngineError(f"{work} elements are too many for the toy backend: use another")
        self._program = program
        made = {each for step in program.steps for each in step.outputs}
        read_by = {each for step in program.steps for each in step.inputs}
        self._constants = {
            each: read(each.data)
            for each in read_by - made
            if each.data is not None
        }  # fmt: skip
        last = {each: number for number, step in enumerate(program.steps) for each in step.inputs}
        kept = {*program.outputs, *self._constants}
        self._done: list[list[Tensor]] = [[] for _ in program.steps]
        for each, number in last.items():
            if each not in kept:
                self._done[number].append(each)

    @property
    def nbytes(self) -> int:
        """Size of all tensors that the steps make, as arrays."""
        made = (each for step in self._program.steps for each in step.outputs)
        return sum(each.nbytes for each in made if each.has_shape and each.data is None)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the program; see ``engine.module.Plan``."""
        values = dict(self._constants)
        for tensor, given in zip(self._program.inputs, inputs, strict=True):
            values[tensor] = read(given)
        for step, done in zip(self._program.steps, self._done, strict=True):
            values[step.output] = _run(step, [values[each] for each in step.inputs])
            for each in done:
                del values[each]
        return [
            written(values[each]) if each.data is None else each.data.copy()
            for each in self._program.outputs
        ]


def _run(step: Step, inputs: Sequence[Value]) -> Value:
    try:
        if step.operator in HOST:
            return read(compute_text([written(each) for each in inputs], step.parameters)[0])
        return KERNELS[step.operator](inputs, step.parameters)
    except (IndexError, ValueError, OverflowError, MemoryError, TypeError) as error:
        shapes = ", ".join(f"{each.dtype.name}{list(each.shape)}" for each in inputs)
        raise EngineError(f"node {step.origin!r}: {step.operator} of {shapes}: {error}") from error


def _work(step: Step) -> int:
    if step.operator is Operator.RASTER:
        return sum(region.count for region in step.regions)
    if step.operator is Operator.MATMUL:
        return step.output.size * step.inputs[0].shape[-1]
    shapes = [each.shape for each in (*step.inputs, step.output) if each.has_shape]
    return max((prod(each) for each in shapes), default=0)
