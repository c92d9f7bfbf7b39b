"""The passes, in their order; every backend runs the optimised program."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from walle_stream.engine.passes.merging import merge_horizontally, merge_vertically
from walle_stream.engine.passes.reading import without_dead
from walle_stream.engine.passes.scaling import fold_scales
from walle_stream.engine.passes.sinking import sink_permutations
from walle_stream.engine.program import Array, Program, Step, Tensor

ROUNDS_MAX: Final = 8
"""Largest number of rounds of passes; most programs need two or three."""

type Compute = Callable[[Step, Sequence[Array]], Array]


def optimised(
    program: Program, compute: Compute, check: Callable[[Program], None] | None = None
) -> Program:
    """Run the passes on a lowered program; ``check`` is called with the result of each pass."""
    passes: list[Callable[[Program], Program]] = [
        merge_horizontally, merge_vertically, sink_permutations, fold_scales,
        partial(_fold_constants, compute=compute),
    ]  # fmt: skip
    current = without_dead(program)
    for _ in range(ROUNDS_MAX):
        before = len(current.steps), _moved(current)
        for run in passes:
            current = run(current)
            if check is not None:
                check(current)
        if (len(current.steps), _moved(current)) == before:
            break
    return current


def _fold_constants(program: Program, compute: Compute) -> Program:
    # steps with known inputs are computed here; broadcast constants stay small
    folded: dict[Tensor, Tensor] = {}
    steps: list[Step] = []
    for step in program.steps:
        inputs = tuple(folded.get(tensor, tensor) for tensor in step.inputs)
        changed = step if inputs == step.inputs else replace(step, inputs=inputs)
        known = [tensor.data for tensor in inputs if tensor.data is not None]
        grows = step.output.has_shape and step.output.size > sum(tensor.size for tensor in inputs)
        if len(known) < max(len(inputs), 1) or grows or not step.output.has_shape:
            steps.append(changed)
            continue
        result = compute(changed, known)
        result.flags.writeable = False
        folded[step.output] = Tensor(result.shape, result.dtype, result, step.output.name)
    outputs = [folded.get(tensor, tensor) for tensor in program.outputs]
    return Program(program.inputs, outputs, steps)


def _moved(program: Program) -> int:
    return sum(
        region.count
        for step in program.steps
        if "regions" in step.parameters
        for region in step.regions
    )
