"""Who makes a tensor, and who reads it."""

from collections import defaultdict
from collections.abc import Iterable

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Program, Step, Tensor


def makers(steps: Iterable[Step]) -> dict[Tensor, Step]:
    """Give the step that makes each tensor; inputs and constants have none."""
    return {output: step for step in steps for output in step.outputs}


def readers(program: Program) -> dict[Tensor, int]:
    """Count how often each tensor is read; an output counts as read once more."""
    counts: dict[Tensor, int] = defaultdict(int)
    for step in program.steps:
        for each in step.inputs:
            counts[each] += 1
    for each in program.outputs:
        counts[each] += 1
    return counts


def without_dead(program: Program) -> Program:
    """Drop steps whose outputs nobody reads."""
    alive = set(program.outputs)
    kept = []
    for step in reversed(program.steps):
        if alive.intersection(step.outputs) or step.operator is Operator.TEXT:
            alive.update(step.inputs)
            kept.append(step)
    return program.replaced(reversed(kept))
