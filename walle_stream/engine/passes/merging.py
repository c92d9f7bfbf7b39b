"""Vertical and horizontal merging of rasters (Walle 2022, geometric computing).

Vertical merging: a raster that reads another raster's output reads that raster's input instead.
The intermediate tensor is dropped if no other step reads it. Horizontal merging: equal steps run
once.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

from walle_stream.engine.operators import Operator
from walle_stream.engine.passes.composition import PIECES_MAX, compose_all
from walle_stream.engine.passes.reading import rewritten, view_of
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Region, simplified

RUN_MIN: Final = 8
"""Contiguous elements in source and output that are copied as fast as memory allows."""


_PIECE_COST: Final = 128


def merge_vertically(program: Program) -> Program:
    """Let rasters read through rasters, which saves intermediate tensors."""
    viewed = _viewed_in_place(program)

    def merged(step: Step, maker_of: Mapping[Tensor, Step]) -> list[Step]:
        while (better := _merged(step, maker_of, viewed)) is not None:
            step = better
        return [step]

    return rewritten(program, merged)


def _viewed_in_place(program: Program) -> Mapping[Tensor, int]:
    """Count the elements that rasters read of each tensor, if the raster could be a view of it."""
    counts: dict[Tensor, int] = defaultdict(int)
    for step in program.steps:
        if view_of(step) is not None:
            counts[step.inputs[0]] += step.output.size
    return counts


def _merged(
    step: Step, maker_of: Mapping[Tensor, Step], viewed: Mapping[Tensor, int]
) -> Step | None:
    for number, tensor in enumerate(step.inputs if step.operator is Operator.RASTER else ()):
        inner = maker_of.get(tensor)
        if inner is None or inner.operator is not Operator.RASTER:
            continue
        if all(region.input != number for region in step.regions):
            continue  # an empty raster names an input only for its dtype
        merged = _through(step, number, inner)
        if merged is None:
            continue
        is_copied = view_of(step) is not None and view_of(merged) is None
        if is_copied and viewed[tensor] > tensor.size:
            continue  # taps of a window: the input is padded once, and each tap is a view of it
        if view_of(merged) is None and 4 * _cost(merged) > 5 * (_cost(step) + _cost(inner)):
            continue  # a border would cut contiguous runs into short pieces
        return merged
    return None


def _through(step: Step, number: int, inner: Step) -> Step | None:
    if inner.parameters.get("accumulate"):
        return None
    inner_fill, fill = inner.parameters.get("fill"), step.parameters.get("fill")
    is_covered = inner_fill is None
    if not is_covered:
        if step.parameters.get("accumulate") or fill not in {None, inner_fill}:
            return None
        fill = inner_fill
    is_worth = _is_worth(step, number, inner)
    regions: list[Region] = []
    inputs = list(step.inputs)
    numbers = []
    for tensor in inner.inputs:
        if tensor not in inputs:
            inputs.append(tensor)
        numbers.append(inputs.index(tensor))
    for region in step.regions:
        if region.input != number:
            regions.append(region)
            continue
        result = compose_all(region, inner.regions, is_covered=is_covered)
        if result is None or not (is_worth or all(_run_of(part) >= RUN_MIN for part in result)):
            return None
        regions += [
            Region(part.size, part.source, part.destination, numbers[part.input]) for part in result
        ]
    if len(regions) > max(PIECES_MAX, len(step.regions)):
        return None
    return rebuilt(step, inputs, regions, fill)


def rebuilt(step: Step, inputs: list[Tensor], regions: list[Region], fill: Any) -> Step:
    """Return a raster with other regions, and with only the inputs that they read."""
    used = sorted({region.input for region in regions}) or [0]
    order = {old: new for new, old in enumerate(used)}
    kept = tuple(
        simplified(Region(part.size, part.source, part.destination, order[part.input]))
        for part in regions
    )
    parameters = {**step.parameters, "regions": kept, "fill": fill}
    return replace(step, inputs=tuple(inputs[number] for number in used), parameters=parameters)


def _is_worth(step: Step, number: int, inner: Step) -> bool:
    # a step that reads each element often should read it from a contiguous tensor
    read = sum(region.count for region in step.regions if region.input == number)
    if 4 * read <= 5 * prod(inner.output.shape):
        return True
    return all(_run_of(region) >= RUN_MIN or region.count <= RUN_MIN for region in inner.regions)


def _cost(step: Step) -> int:
    """Estimate the cost of a raster in moved elements; each piece has a fixed cost."""
    moved = sum(
        region.count + _PIECE_COST * (region.count // _run_of(region)) for region in step.regions
    )
    is_covered = sum(region.count for region in step.regions) >= step.output.size
    return moved if is_covered else moved + step.output.size


def _run_of(region: Region) -> int:
    kept = simplified(region)
    if not kept.size:
        return 1
    if kept.source.strides[-1] == kept.destination.strides[-1] == 1:
        return kept.size[-1]
    return RUN_MIN if kept.source.strides[-1] == 0 else 1


def merge_horizontally(program: Program) -> Program:
    """Run equal steps only once."""
    known: dict[Any, Step] = {}
    same: dict[Tensor, Tensor] = {}
    steps = []
    for step in program.steps:
        inputs = tuple(same.get(tensor, tensor) for tensor in step.inputs)
        if inputs != step.inputs:
            step = replace(step, inputs=inputs)  # noqa: PLW2901
        first = None
        if step.operator not in {Operator.RANDOM, Operator.TEXT}:
            first = known.setdefault(_key(step), step)
        if first is None or first is step:
            steps.append(step)
        else:
            same.update(zip(step.outputs, first.outputs, strict=True))
    outputs = [same.get(tensor, tensor) for tensor in program.outputs]
    return Program(program.inputs, outputs, steps)


def _key(step: Step) -> Any:
    parameters = tuple(
        (name, value if name == "regions" else repr(value))
        for name, value in sorted(step.parameters.items())
    )
    return step.operator, tuple(map(id, step.inputs)), parameters
