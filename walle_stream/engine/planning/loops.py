"""Steps that run together on a few rows at a time, so that their tensors stay in cache.

Elementwise steps, and reductions over other axes, give the same result for a few rows as for all
of them. A chain of such steps becomes one loop over tiles of rows. A tensor that only steps of the
loop read never leaves its tile (vertical loop fusion without a compiler).
"""

from dataclasses import dataclass, field
from typing import Final

from walle_stream.engine.operators import ELEMENTWISE, REDUCTION
from walle_stream.engine.planning.elision import Elision, is_loose
from walle_stream.engine.program import Step, Tensor
from walle_stream.engine.region import Shape, strides_of

TILE_BYTES: Final = 1 << 18
"""Bytes of one tile of a loop's largest tensor; several tiles fit into the second-level cache."""

_EVEN: Final = 16
_EVEN_MIN: Final = 4 * _EVEN

SIZE_MIN: Final = 1 << 13
"""Number of elements below which reductions are not cut."""


@dataclass(slots=True, eq=False)
class Loop:
    """Steps that run tile by tile; a step that cannot be cut is a loop with one tile."""

    steps: list[Step]
    axis: int = 0
    """The axis that is cut; all axes before it have size 1."""
    rows: int = 0
    """Size of the axis."""
    rows_per_tile: int = 0
    inner: list[Tensor] = field(default_factory=list)
    """Tensors that are written and read only in the loop."""

    @property
    def is_cut(self) -> bool:
        """Whether the loop has more than one tile."""
        return 0 < self.rows_per_tile < self.rows


def loops_of(elision: Elision) -> list[Loop]:
    """Group consecutive steps that may share tiles; the order of steps stays."""
    loops: list[Loop] = []
    current: Loop | None = None
    result: set[Tensor] = set()
    for step in elision.steps:
        frame = _frame_of(step)
        if frame is None:
            loops.append(Loop([step]))
            current = None
            continue
        if current is None or not _joins(current, result, step, frame, elision):
            current, result = Loop([], *frame), set()
            loops.append(current)
        current.steps.append(step)
        result.update(step.outputs)
    number = 0
    for loop in loops:
        first, number = number, number + len(loop.steps)
        if loop.rows:
            _cut(loop, first, elision)
    return loops


def _frame_of(step: Step) -> tuple[int, int] | None:
    """Return the axis along which a step may be cut, and its size, or None."""
    if step.operator in ELEMENTWISE:
        shape = step.output.shape
    elif step.operator in REDUCTION:
        shape = step.inputs[0].shape
    else:
        return None
    if any(is_loose(tensor) for tensor in (*step.inputs, *step.outputs)):
        return None
    axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
    if axis is None or (step.inputs[0].size < SIZE_MIN and step.operator in REDUCTION):
        return None
    if step.operator in REDUCTION and axis in step.parameters["axes"]:
        return None
    return axis, shape[axis]


def _joins(
    loop: Loop, result: set[Tensor], step: Step, frame: tuple[int, int], elision: Elision
) -> bool:
    if frame != (loop.axis, loop.rows):
        return False
    return all(
        _is_aligned(tensor, elision, loop.axis, loop.rows)
        for tensor in step.inputs
        if elision.aliases[tensor].root in result
    )


def _is_aligned(tensor: Tensor, elision: Elision, axis: int, rows: int) -> bool:
    """Whether some rows of a tensor are views of as many rows of its root."""
    alias = elision.aliases[tensor]
    root, shape = alias.root.shape, tensor.shape
    if len(root) <= axis or len(shape) <= axis or root[axis] != rows or shape[axis] != rows:
        return False
    step = strides_of(root)[axis]
    reach = alias.view.offset + sum(
        stride * (size - 1)
        for stride, size in zip(alias.view.strides[axis + 1 :], shape[axis + 1 :], strict=True)
    )
    lead = _is_lead(root, axis) and _is_lead(shape, axis)
    return lead and alias.view.strides[axis] == step and 0 <= alias.view.offset <= reach < step


def _is_lead(shape: Shape, axis: int) -> bool:
    return all(size == 1 for size in shape[:axis])


def _cut(loop: Loop, first: int, elision: Elision) -> None:
    largest = max(tensor.nbytes for step in loop.steps for tensor in (*step.inputs, *step.outputs))
    row_bytes = max(1, largest // loop.rows)
    loop.rows_per_tile = min(loop.rows, max(1, TILE_BYTES // row_bytes))
    last = first + len(loop.steps) - 1
    if not loop.is_cut:
        return
    # equal tiles, so that the last one is not a sliver
    tiles = -(-loop.rows // loop.rows_per_tile)
    loop.rows_per_tile = -(-loop.rows // tiles)
    if loop.rows_per_tile >= _EVEN_MIN:
        # a number with many divisors; see ``backends.spreading``
        loop.rows_per_tile = -(-loop.rows_per_tile // _EVEN) * _EVEN
    loop.inner = [
        output for step in loop.steps for output in step.outputs
        if all(first <= number <= last for number in elision.users[output])
    ]  # fmt: skip
