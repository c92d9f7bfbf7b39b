"""Where tensors lie: buffers of one arena, shared by those that do not live together.

An elementwise step may write over an input that nobody reads afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from walle_stream.engine.operators import ELEMENTWISE
from walle_stream.engine.planning.elision import Elision, is_loose, is_plain
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.program import Program, Step, Tensor

ALIGNMENT: Final = 64
"""Bytes: a line of cache, and the widest vector."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory that one tensor lies in, or several one after the other."""

    nbytes: int
    first: int
    """Number of the step from which it is written; -1 for an input."""
    last: int
    """Number of the last step until which it is read."""
    offset: int = -1
    """In the arena, bytes."""


@dataclass(slots=True)
class Placement:
    """Of a whole program."""

    buffers: Mapping[Tensor, Buffer]
    """Of the roots that lie in the arena: not of constants, loose ones and those of tiles."""
    arena_bytes: int
    """Most memory that is used at once."""
    total_bytes: int
    """What it would be with a buffer for each tensor."""


def place(program: Program, elision: Elision, loops: Sequence[Loop]) -> Placement:
    """Decide where the tensors of a program lie.

    Args:
        program: After the passes.
        elision: Of it.
        loops: Of it.

    Returns:
        A buffer for each root.
    """
    spans: list[tuple[int, int]] = []
    for loop in loops:
        first = len(spans)
        spans += [(first, first + len(loop.steps) - 1)] * len(loop.steps)
    spans.append((len(spans), len(spans)))
    inner = {each for loop in loops for each in loop.inner}
    buffers: dict[Tensor, Buffer] = {}
    made: list[Buffer] = []

    def last_of(tensor: Tensor, least: int) -> int:
        return max([spans[number][1] for number in elision.users[tensor]] + [least])

    for each in program.inputs:
        if not is_loose(each):
            buffers[each] = Buffer(each.nbytes, -1, last_of(each, -1))
            made.append(buffers[each])
    owners = [loop for loop in loops for _ in loop.steps]
    for number, (step, loop) in enumerate(zip(elision.steps, owners, strict=True)):
        for each in step.outputs:
            if is_loose(each) or each in inner:
                continue
            shared = _overwritten(step, number, loop, elision, buffers)
            if shared is not None:
                shared.last = last_of(each, spans[number][1])
                buffers[each] = shared
            else:
                first, last = spans[number]
                buffers[each] = Buffer(each.nbytes, first, last_of(each, last))
                made.append(buffers[each])
    total = sum(each.nbytes for each in {*buffers, *inner})
    return Placement(buffers, _arrange(made), total)


def _overwritten(
    step: Step, number: int, loop: Loop, elision: Elision, buffers: Mapping[Tensor, Buffer]
) -> Buffer | None:
    """Find the buffer of a tensor that a step may write over: it, or one before it read it last.

    A tile that was just read is in the cache, another buffer's is not.
    """
    output = step.output
    if step.operator not in ELEMENTWISE or any(is_loose(each) for each in step.inputs):
        return None
    before = loop.steps[: loop.steps.index(step)]
    # what lies in a buffer that was written over already is none of these
    gone = {id(buffers[each.output]) for each in before if each.output in buffers}
    for reader in (step, *reversed(before)):
        for tensor in reader.inputs:
            root = elision.seen[tensor].root
            buffer = buffers.get(root)
            if (
                buffer is None
                or buffer.first < 0
                or tensor.dtype.itemsize != output.dtype.itemsize
                or tensor.shape != output.shape
                or tensor.size != root.size
                or buffer.nbytes != output.nbytes
                or not is_plain(elision.seen[tensor].view, tensor.shape)
                or any(user > number for user in elision.users[root])
                or (reader is not step and id(buffer) in gone)
                or not all(_is_whole(each, root, elision) for each in loop.steps)
            ):
                continue
            return buffer
    return None


def _is_whole(step: Step, root: Tensor, elision: Elision) -> bool:
    """Whether a step of the loop reads a root, if at all, place by place as it lies.

    Otherwise a tile would read what an earlier one has written over.
    """
    return all(
        each.size == root.size and is_plain(elision.seen[each].view, each.shape)
        for each in step.inputs
        if elision.seen[each].root is root
    )


def _arrange(buffers: Sequence[Buffer]) -> int:
    """Give each buffer an offset, the largest first, and return what all need."""
    placed: list[Buffer] = []
    needed = 0
    for buffer in sorted(buffers, key=lambda each: -each.nbytes):
        size = _aligned(buffer.nbytes)
        offset = 0
        living = [
            each for each in placed if each.first <= buffer.last and buffer.first <= each.last
        ]
        for other in sorted(living, key=lambda each: each.offset):
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + _aligned(other.nbytes))
        buffer.offset = offset
        placed.append(buffer)
        needed = max(needed, offset + size)
    return needed


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
