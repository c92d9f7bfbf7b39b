"""The numpy backend, every stage held against its specification: after each pass, and planned."""

from collections.abc import Sequence

from walle_stream.engine.backends.numpy import NumpyBackend, NumpyPlan
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.program import Array, Program, Step
from walle_stream.testing.stages import verify_plan, verify_program


class CheckedBackend:
    """Plans as the numpy backend does; raises ``SpecError`` where a stage is wrong."""

    name = "checked"

    def plan(self, program: Program) -> NumpyPlan:
        """Make a program ready; see ``engine.module.Backend``."""
        verify_program(program)
        plan = NumpyBackend(verify_program).plan(program)
        verify_program(plan.program)
        verify_plan(plan.program, plan.elision, plan.loops, plan.placement)
        return plan

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``reference.compute``."""
        return compute(step, inputs)
