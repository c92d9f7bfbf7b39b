"""Elision of rasters whose output is a view of their input, and is read in place."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from walle_stream.engine.operators import ELEMENTWISE, REDUCTION, Operator
from walle_stream.engine.passes.reading import view_of
from walle_stream.engine.program import Program, Step, Tensor
from walle_stream.engine.region import Shape, View, strides_of
from walle_stream.engine.rules import TEXT

_VIEW_READERS: Final = ELEMENTWISE | REDUCTION


@dataclass(frozen=True, slots=True)
class Alias:
    """A tensor as a view, over its own shape, of a row-major root tensor."""

    root: Tensor
    view: View


@dataclass(slots=True)
class Elision:
    """A program without the rasters that move nothing."""

    aliases: dict[Tensor, Alias]
    """Alias of every tensor that is not loose; most tensors are their own root."""
    steps: list[Step]
    users: dict[Tensor, list[int]]
    """Numbers in ``steps`` of the readers, by root; ``len(steps)`` stands for the caller."""


def is_loose(tensor: Tensor) -> bool:
    """Whether a tensor cannot lie in an arena: strings, and shapes that depend on values."""
    return tensor.dtype == TEXT or not tensor.has_shape


def is_plain(view: View, shape: Shape) -> bool:
    """Whether a view over a shape reads row-major, without gaps."""
    own = strides_of(shape)
    return all(
        size == 1 or mine == plain
        for size, mine, plain in zip(shape, view.strides, own, strict=True)
    )


def elide(program: Program) -> Elision:
    """Find the rasters whose readers all take a view."""
    readers = _readers(program)
    made = (step.output for step in program.steps)
    aliases = {
        tensor: Alias(tensor, View(0, strides_of(tensor.shape)))
        for tensor in dict.fromkeys((*program.inputs, *readers, *made)) if not is_loose(tensor)
    }  # fmt: skip
    steps: list[Step] = []
    for step in program.steps:
        result = _alias_of(step, aliases, readers)
        if result is None:
            steps.append(step)
        else:
            aliases[step.output] = result
    users: dict[Tensor, list[int]] = defaultdict(list)
    reads = [step.inputs for step in steps] + [tuple(program.outputs)]
    for number, tensors in enumerate(reads):
        for tensor in tensors:
            if tensor in aliases:
                users[aliases[tensor].root].append(number)
    return Elision(aliases, steps, users)


def _readers(program: Program) -> dict[Tensor, list[Step | None]]:
    readers: dict[Tensor, list[Step | None]] = defaultdict(list)
    for step in program.steps:
        for tensor in step.inputs:
            readers[tensor].append(step)
    for tensor in program.outputs:
        readers[tensor].append(None)
    return readers


def _alias_of(
    step: Step, aliases: dict[Tensor, Alias], readers: dict[Tensor, list[Step | None]]
) -> Alias | None:
    if step.operator is not Operator.RASTER or is_loose(step.output) or not step.output.size:
        return None
    view = view_of(step)
    if view is None:
        return None
    source = aliases[step.inputs[0]]
    if not is_plain(source.view, step.inputs[0].shape):
        return None
    moved = View(view.offset + source.view.offset, view.strides)
    shape = step.output.shape
    if is_plain(moved, shape) or all(
        _takes(reader, moved, shape) for reader in readers[step.output]
    ):
        return Alias(source.root, moved)
    return None


def _takes(reader: Step | None, view: View, shape: Shape) -> bool:
    if reader is None:
        return False
    if reader.operator is Operator.MATMUL:
        return _is_matrix(view, shape)
    return reader.operator in _VIEW_READERS and _is_smooth(view, shape)


def _is_matrix(view: View, shape: Shape) -> bool:
    """Whether BLAS can read the last two axes without a copy."""
    (rows, columns), (high, low) = shape[-2:], view.strides[-2:]
    if columns == 1 or rows == 1:
        return rows * columns == 1 or 0 not in view.strides[-2:]
    return (low == 1 and high >= columns) or (high == 1 and low >= rows)


def _is_smooth(view: View, shape: Shape) -> bool:
    """Whether the innermost axis of more than one element has stride 1 or 0."""
    inner = [stride for stride, size in zip(view.strides, shape, strict=True) if size > 1]
    return not inner or inner[-1] in {0, 1}
