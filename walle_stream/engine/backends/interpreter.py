"""Runs programs step by step with a backend's kernels: no buffer is shared."""

from collections.abc import Callable, Sequence

import numpy as np

from walle_stream.clock import monotonic_ms
from walle_stream.engine.backends.reference import compute, compute_all
from walle_stream.engine.program import Array, Program, Step, Tensor

type Watch = Callable[[Step, float], None]
"""Is told of each step that was run, and its milliseconds."""
type ComputeAll = Callable[[Step, Sequence[Array]], list[Array]]


class Interpreter:
    """A backend of the reference kernels."""

    name = "reference"

    def plan(self, program: Program) -> "InterpretedPlan":
        """Make a program ready; see ``engine.module.Backend``."""
        return InterpretedPlan(program, compute_all)

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``reference.compute``."""
        return compute(step, inputs)


class InterpretedPlan:
    """A program that is run as it stands. Thread-safe; blocks."""

    def __init__(self, program: Program, kernels: ComputeAll) -> None:
        """Take over."""
        self.program = program
        self._kernels = kernels

    @property
    def nbytes(self) -> int:
        """Bytes of all that is made: nothing is given back before the end."""
        tensors = (each for step in self.program.steps for each in step.outputs)
        return sum(each.nbytes for each in tensors if each.has_shape and each.data is None)

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run it; see ``engine.module.Plan`` and ``engine.profiling``."""
        values: dict[Tensor, Array] = dict(zip(self.program.inputs, inputs, strict=True))
        for step in self.program.steps:
            given = [each.data if each.data is not None else values[each] for each in step.inputs]
            start_ms = 0.0 if watch is None else monotonic_ms()
            values.update(zip(step.outputs, self._kernels(step, given), strict=True))
            if watch is not None:
                watch(step, monotonic_ms() - start_ms)
        # the caller's own, also where an output is an input or stands twice
        return [
            np.array(each.data if each.data is not None else values[each])
            for each in self.program.outputs
        ]
