"""The numpy backend with checks of every stage, after each pass and of the final plan."""

from collections.abc import Sequence

from walle_stream.engine.backends.numpy import NumpyBackend, NumpyPlan
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.program import Array, Program, Step
from walle_stream.testing.stages import verify_plan, verify_program


class CheckedBackend:
    """A backend like the numpy backend that raises ``SpecError`` for a wrong stage."""

    name = "checked"

    def plan(self, program: Program) -> NumpyPlan:
        """Return a checked plan of a program; see ``engine.module.Backend``."""
        verify_program(program)
        plan = NumpyBackend(verify_program).plan(program)
        verify_program(plan.program)
        verify_plan(plan.program, plan.elision, plan.loops, plan.placement)
        return plan

    def compute(self, step: Step, inputs: Sequence[Array]) -> Array:
        """Run one step; see ``reference.compute``."""
        return compute(step, inputs)
