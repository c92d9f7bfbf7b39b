"""What a program costs in rasters and memory, before and after the passes."""

from dataclasses import dataclass
from math import prod

from walle_stream.engine.operators import Operator
from walle_stream.engine.planning.elision import Elision, is_loose
from walle_stream.engine.planning.placement import Placement
from walle_stream.engine.program import Program, Step, Tensor


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one program, or of several that are run one after the other."""

    steps: int = 0
    rasters: int = 0
    """Among the steps."""
    moved_bytes: int = 0
    """That rasters write: elements of their regions, and of what they fill."""
    peak_bytes: int = 0
    """Most memory of inputs and made tensors at once, constants apart."""

    def __add__(self, other: "Statistics") -> "Statistics":
        """Add what is done one after the other: the peak is that of one of both."""
        return Statistics(
            self.steps + other.steps,
            self.rasters + other.rasters,
            self.moved_bytes + other.moved_bytes,
            max(self.peak_bytes, other.peak_bytes),
        )


def program_statistics(program: Program) -> Statistics:
    """Count a program as it stands: each tensor has memory of its own, until its last reader.

    Tensors whose shapes depend on values are not among the bytes.
    """
    return _counted(program.steps, _living_peak(program))


def plan_statistics(elision: Elision, placement: Placement) -> Statistics:
    """Count a program as it is run: rasters read in place move nothing, the arena is the peak."""
    return _counted(elision.steps, placement.arena_bytes)


def traffic_bytes(step: Step) -> int:
    """Count the bytes of a step's inputs and outputs, of a raster twice what it moves.

    An element that is spread counts as often as it is read.
    """
    if step.operator is Operator.RASTER:
        return 2 * _moved_bytes(step)
    return sum(tensor.nbytes for tensor in (*step.inputs, *step.outputs) if tensor.has_shape)


def _counted(steps: list[Step], peak_bytes: int) -> Statistics:
    rasters = [step for step in steps if step.operator is Operator.RASTER]
    return Statistics(
        len(steps), len(rasters), sum(_moved_bytes(step) for step in rasters), peak_bytes
    )


def _moved_bytes(step: Step) -> int:
    item = step.output.dtype.itemsize
    covered = sum(prod(region.size) for region in step.regions)
    size = step.output.size if step.output.has_shape else covered
    # what no region covers is filled
    return max(covered, size) * item


def _living_peak(program: Program) -> int:
    last: dict[Tensor, int] = {}
    for number, step in enumerate(program.steps):
        last.update(dict.fromkeys(step.inputs, number))
    last.update(dict.fromkeys(program.outputs, len(program.steps)))
    living = sum(_size(tensor) for tensor in program.inputs)
    peak = living
    for number, step in enumerate(program.steps):
        living += sum(_size(tensor) for tensor in step.outputs)
        peak = max(peak, living)
        ending = {*step.inputs, *step.outputs}
        living -= sum(_size(tensor) for tensor in ending if last.get(tensor, number) == number)
    return peak


def _size(tensor: Tensor) -> int:
    return 0 if is_loose(tensor) or tensor.data is not None else tensor.nbytes
