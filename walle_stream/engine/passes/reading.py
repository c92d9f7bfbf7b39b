"""Readers of tensors, and rasters whose output is a view of their input."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Shape, View


def rewritten(
    program: Program, rule: Callable[[Step, Mapping[Tensor, Step]], Sequence[Step] | None]
) -> Program:
    """Replace each step by the steps that a rule returns, and drop steps without readers.

    The rule gets a step and the current maker of each tensor; inputs and constants have none. If it
    returns None, the step stays.
    """
    maker_of = {step.output: step for step in program.steps}
    steps: list[Step] = []
    for step in program.steps:
        for new in rule(step, maker_of) or (step,):
            steps.append(new)
            maker_of[new.output] = new
    return without_dead(program.replaced(steps))


def readers(program: Program) -> Counter[Tensor]:
    """Count how often each tensor is read; an output counts as read once more."""
    inputs = (tensor for step in program.steps for tensor in step.inputs)
    return Counter(chain(inputs, program.outputs))


def without_dead(program: Program) -> Program:
    """Drop steps whose outputs are never read, except steps on text."""
    alive = set(program.outputs)
    kept = []
    for step in reversed(program.steps):
        if alive.intersection(step.outputs) or step.operator is Operator.TEXT:
            alive.update(step.inputs)
            kept.append(step)
    return program.replaced(reversed(kept))


def view_of(step: Step) -> View | None:
    """Return a raster's output as a view of its one row-major input; None if elements must move."""
    if (
        step.operator is not Operator.RASTER
        or len(step.regions) != 1
        or step.parameters.get("accumulate")
        or len(step.inputs) != 1
    ):
        return None
    (region,) = step.regions
    shape = step.output.shape
    if region.count != step.output.size or region.destination.offset:
        return None
    axes = sorted(
        (write, size, read)
        for size, read, write in zip(
            region.size, region.source.strides, region.destination.strides, strict=True
        )
        if size > 1
    )
    reach = 1
    for write, size, _ in axes:
        if write != reach:
            return None
        reach *= size
    strides = _by_axis(shape, [(size, read) for _, size, read in axes])
    return None if strides is None else View(region.source.offset, strides)


def _by_axis(shape: Shape, axes: list[tuple[int, int]]) -> Shape | None:
    """Return the read strides of the axes of ``shape``; ``axes`` start with the innermost one."""
    results: list[int] = []
    rest = iter(axes)
    count, read = 1, 0
    for size in reversed(shape):
        if size == 1:
            results.append(0)
            continue
        if count == 1:
            count, read = next(rest)
        while count < size:
            more, outer = next(rest)
            if outer != read * count:
                return None  # the axis has no constant stride
            count *= more
        if count % size:
            return None
        results.append(read)
        count, read = count // size, read * size
    return tuple(reversed(results))
