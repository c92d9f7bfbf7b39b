"""Moves permutations after elementwise operators, where they meet and cancel.

``f(permuted(x), permuted(y))`` is ``permuted(f(x, y))``: an elementwise operator is independent of
the order of memory. Convolutions work channels-last and end with a permutation. It sinks through
activations and residual sums to the next convolution, which begins with its inverse, and both
disappear.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from walle_stream.engine.operators import ELEMENTWISE, Operator
from walle_stream.engine.passes.composition import compose_all
from walle_stream.engine.passes.merging import rebuilt
from walle_stream.engine.passes.reading import rewritten
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Region, View, simplified


def sink_permutations(program: Program) -> Program:
    """Run elementwise steps in the memory order of their inputs, and permute the results."""
    return rewritten(program, _sunk)


def _sunk(step: Step, maker_of: Mapping[Tensor, Step]) -> list[Step] | None:
    permutation = _permutation_of(step, maker_of) if step.operator in ELEMENTWISE else None
    if permutation is None:
        return None
    region, shape = permutation
    back = Region(region.size, region.destination, region.source)
    steps: list[Step] = []
    inputs = []
    for tensor in step.inputs:
        undone = _undone(tensor, maker_of, back, shape, step)
        if undone is None:
            return None
        inputs.append(undone[0])
        steps += undone[1:]
    inner = Tensor(shape, step.output.dtype)
    steps.append(replace(step, inputs=tuple(inputs), outputs=(inner,)))
    steps.append(Step.raster(inner, step.output, region, step.origin))
    return steps


def _permutation_of(
    step: Step, maker_of: Mapping[Tensor, Step]
) -> tuple[Region, tuple[int, ...]] | None:
    result = None
    for tensor in step.inputs:
        maker = maker_of.get(tensor)
        if tensor.data is not None or _is_spread(maker):
            continue
        if maker is None or not _is_permutation(maker):
            return None
        (region,) = maker.regions
        mine = (simplified(region), maker.inputs[0].shape)
        if result is not None and (
            result[0].source != mine[0].source
            or result[0].size != mine[0].size
            or result[1] != mine[1]
        ):
            return None
        result = mine
    if result is None or len(result[0].size) == 1:
        return None  # one axis has no order
    return result


def _is_permutation(step: Step) -> bool:
    # whether a raster of one region moves each element of its only input to a separate address
    if step.operator is not Operator.RASTER or len(step.regions) != 1 or len(step.inputs) != 1:
        return False
    (region,) = step.regions
    count = prod(step.output.shape)
    return (
        step.parameters.get("fill") is None
        and region.count == count == prod(step.inputs[0].shape)
        and all(region.source.strides[axis] > 0 for axis in range(len(region.size)))
        and region.source.offset == 0
        and _covers(region, region.source)
    )


def _covers(region: Region, view: View) -> bool:
    reach = 1
    for stride, size in sorted(zip(view.strides, region.size, strict=True)):
        if size == 1:
            continue
        if stride != reach:
            return False
        reach *= size
    return True


def _is_spread(maker: Step | None) -> bool:
    if maker is None or maker.operator is not Operator.RASTER or len(maker.regions) != 1:
        return False
    return 0 in maker.regions[0].source.strides and maker.parameters.get("fill") is None


def _undone(
    tensor: Tensor,
    maker_of: Mapping[Tensor, Step],
    back: Region,
    shape: tuple[int, ...],
    step: Step,
) -> tuple[Tensor, *tuple[Step, ...]] | None:
    """Return an input in the order before the permutation, and the steps that make it, or None."""
    maker = maker_of.get(tensor)
    if tensor.data is None and maker is not None and _is_permutation(maker):
        source = maker.inputs[0]
        return (source,) if source.shape == shape else None
    output = Tensor(shape, tensor.dtype)
    moved = Step.raster(tensor, output, back, step.origin)
    if maker is None or maker.operator is not Operator.RASTER:
        return output, moved
    regions = compose_all(back, maker.regions, is_covered=True)
    if regions is None or len(regions) != 1:
        return None
    return output, rebuilt(moved, list(maker.inputs), regions, None)
