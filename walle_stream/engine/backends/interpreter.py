"""Runs programs step by step with a backend's kernels: no buffer is shared."""

from collections.abc import Callable, Sequence

import numpy as np

from walle_stream.engine.backends.reference import compute, compute_all
from walle_stream.engine.program import Array, Program, Step, Tensor

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
        """Take over.

        Args:
            program: Lowered.
            kernels: Run one step.
        """
        self._program = program
        self._kernels = kernels

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run it; see ``engine.module.Plan``."""
        values: dict[Tensor, Array] = dict(zip(self._program.inputs, inputs, strict=True))
        for step in self._program.steps:
            given = [each.data if each.data is not None else values[each] for each in step.inputs]
            values.update(zip(step.outputs, self._kernels(step, given), strict=True))
        # the caller's own, also where an output is an input or stands twice
        return [
            np.array(each.data if each.data is not None else values[each])
            for each in self._program.outputs
        ]
