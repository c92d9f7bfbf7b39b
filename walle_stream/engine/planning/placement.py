"""Placement of tensors in buffers of one arena, shared by tensors with disjoint lifetimes.

An elementwise step may overwrite an input that no later step reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from walle_stream.engine.operators import ELEMENTWISE
from walle_stream.engine.planning.elision import Elision, is_loose, is_plain
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.program import Program, Step, Tensor

ALIGNMENT: Final = 64
"""Alignment in bytes: a cache line, and the widest vector."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of one tensor, or of several in succession."""

    nbytes: int
    first: int
    """Number of the first step that writes it; -1 for an input."""
    last: int
    """Number of the last step that reads it."""
    offset: int = -1
    """Offset in the arena, in bytes."""


@dataclass(slots=True)
class Placement:
    """The buffers of a whole program."""

    buffers: Mapping[Tensor, Buffer]
    """Buffers of the roots in the arena: not of constants, loose tensors or tensors of tiles."""
    arena_bytes: int
    """Size of the arena, which is the peak memory."""


def place(program: Program, elision: Elision, loops: Sequence[Loop]) -> Placement:
    """Assign a buffer to each root of a program."""
    spans: list[tuple[int, int]] = []
    for loop in loops:
        first = len(spans)
        spans += [(first, first + len(loop.steps) - 1)] * len(loop.steps)
    spans.append((len(spans), len(spans)))
    inner = {tensor for loop in loops for tensor in loop.inner}
    buffers: dict[Tensor, Buffer] = {}

    def last_of(tensor: Tensor, least: int) -> int:
        return max([spans[number][1] for number in elision.users[tensor]] + [least])

    for tensor in program.inputs:
        if not is_loose(tensor):
            buffers[tensor] = Buffer(tensor.nbytes, -1, last_of(tensor, -1))
    owners = [loop for loop in loops for _ in loop.steps]
    owner: Loop | None = None
    for number, (step, loop) in enumerate(zip(elision.steps, owners, strict=True)):
        if loop is not owner:
            owner, within = loop, _InLoop(loop, elision)
        for tensor in step.outputs:
            if is_loose(tensor) or tensor in inner:
                continue
            shared = within.overwritten(step, number, buffers)
            if shared is not None:
                shared.last = last_of(tensor, spans[number][1])
                buffers[tensor] = shared
            else:
                first, last = spans[number]
                buffers[tensor] = Buffer(tensor.nbytes, first, last_of(tensor, last))
        within.passed(step, buffers)
    return Placement(buffers, _arrange(dict.fromkeys(buffers.values())))


class _InLoop:
    def __init__(self, loop: Loop, elision: Elision) -> None:
        self._loop = loop
        self._elision = elision
        self._before: list[Step] = []
        self._gone: set[int] = set()
        """Ids of buffers whose earlier contents were overwritten."""
        # roots with another layout: a tile would read elements that an earlier tile has overwritten
        self._askew = {
            elision.aliases[tensor].root
            for step in loop.steps for tensor in step.inputs
            if not is_loose(tensor) and not _is_whole(tensor, elision)
        }  # fmt: skip

    def overwritten(
        self, step: Step, number: int, buffers: Mapping[Tensor, Buffer]
    ) -> Buffer | None:
        """Find a buffer that a step may overwrite, last read by the step or an earlier one.

        A tile that was just read is in the cache, unlike a tile of another buffer. If the loop is
        not cut, only the inputs of the step count: earlier tensors have left the cache.
        """
        if step.operator not in ELEMENTWISE or any(is_loose(operand) for operand in step.inputs):
            return None
        for reader in (step, *reversed(self._before)):
            for tensor in reader.inputs:
                buffer = self._free(tensor, step.output, number, buffers)
                if buffer is not None and (reader is step or id(buffer) not in self._gone):
                    return buffer
        return None

    def passed(self, step: Step, buffers: Mapping[Tensor, Buffer]) -> None:
        """Record a step whose outputs were placed."""
        if self._loop.is_cut:
            self._before.append(step)
            self._gone.update(id(buffers[tensor]) for tensor in step.outputs if tensor in buffers)

    def _free(
        self, tensor: Tensor, output: Tensor, number: int, buffers: Mapping[Tensor, Buffer]
    ) -> Buffer | None:
        root = self._elision.aliases[tensor].root
        buffer = buffers.get(root)
        if (
            buffer is None
            or buffer.first < 0
            or tensor.dtype.itemsize != output.dtype.itemsize
            or tensor.shape != output.shape
            or buffer.nbytes != output.nbytes
            or root in self._askew
            or any(user > number for user in self._elision.users[root])
        ):
            return None
        return buffer


def _is_whole(tensor: Tensor, elision: Elision) -> bool:
    """Whether a tensor has all elements of its root, in the same order."""
    alias = elision.aliases[tensor]
    return tensor.size == alias.root.size and is_plain(alias.view, tensor.shape)


def _arrange(buffers: Iterable[Buffer]) -> int:
    """Assign offsets, to the largest buffer first, and return the size of the arena."""
    placed: list[Buffer] = []
    needed = 0
    for buffer in sorted(buffers, key=lambda buffer: -buffer.nbytes):
        size = _aligned(buffer.nbytes)
        offset = 0
        living = [
            item for item in placed if item.first <= buffer.last and buffer.first <= item.last
        ]
        for other in sorted(living, key=lambda buffer: buffer.offset):
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + _aligned(other.nbytes))
        buffer.offset = offset
        placed.append(buffer)
        needed = max(needed, offset + size)
    return needed


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
