"""Binds successive steps to their arrays, whole or tile by tile."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from walle_stream.engine.backends.bound import bind
from walle_stream.engine.backends.library import Bound, Run, strided
from walle_stream.engine.backends.spreading import laid_out
from walle_stream.engine.operators import ELEMENTWISE, Operator
from walle_stream.engine.planning.elision import Elision
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.program import Array, Step, Tensor

type ViewOf = Callable[[Tensor], Array]


def bind_chain(steps: Sequence[Step], elision: Elision, view_of: ViewOf) -> list[Bound]:
    """Bind successive steps without loose tensors, and return the calls in order.

    ``view_of`` returns the view through which a tensor is read and written. ``elision``
    belongs to the plan.
    """
    calls: list[Bound] = []
    number = 0
    while number < len(steps):
        step = steps[number]
        after = steps[number + 1] if number + 1 < len(steps) else None
        if after is not None and _is_clip(step, after, elision):
            calls.append(Bound(_clip(step, after, view_of), after))
            number += 2
            continue
        roots = [_constant(elision.aliases[tensor].root) for tensor in step.inputs]
        inputs, output = laid_out(
            step.operator, [view_of(tensor) for tensor in step.inputs], roots, view_of(step.output)
        )
        calls.append(Bound(bind(step, inputs, output), step))
        number += 1
    return calls


def _constant(root: Tensor) -> Array | None:
    # None: a root with another layout is read through a copy
    data = root.data
    return data if data is not None and data.flags.c_contiguous else None


def _is_clip(low: Step, high: Step, elision: Elision) -> bool:
    """Whether two steps are one ``clip`` of floats by two numbers, without another reader."""
    output = low.output
    return (
        low.operator is Operator.MAXIMUM
        and high.operator is Operator.MINIMUM
        and output.dtype.name in {"float32", "float64"}
        and high.inputs[0] is output
        and len(elision.users[output]) == 1
        and _is_number(low.inputs[1], elision)
        and _is_number(high.inputs[1], elision)
    )


def _is_number(tensor: Tensor, elision: Elision) -> bool:
    root = elision.aliases[tensor].root
    return root.data is not None and root.data.size == 1


def _clip(low: Step, high: Step, view_of: ViewOf) -> Run:
    x, output = view_of(low.inputs[0]), view_of(high.output)
    first, last = (view_of(step.inputs[1]) for step in (low, high))
    if not output.size:
        return lambda: None
    begin, end = (np.asarray(bound[(0,) * bound.ndim]) for bound in (first, last))
    clip = x.clip
    return lambda: clip(begin, end, out=output)


def tiled(loop: Loop, elision: Elision, view_of: ViewOf, blocks: list[Array]) -> list[Bound]:
    """Bind the steps of a loop of several tiles, tile by tile; see ``bind_chain``.

    ``blocks`` has memory for tiles, which loops share as they run in succession.
    """
    slots = _slots(loop, elision, blocks)
    calls: list[Bound] = []
    for start in range(0, loop.rows, loop.rows_per_tile):
        stop = min(start + loop.rows_per_tile, loop.rows)

        def tile(tensor: Tensor, start: int = start, stop: int = stop) -> Array:
            alias = elision.aliases[tensor]
            if alias.root in slots:
                shape = list(tensor.shape)
                shape[loop.axis] = stop - start
                return strided(slots[alias.root], shape, alias.view)
            whole, axis = view_of(tensor), loop.axis
            if tensor.rank <= axis or tensor.shape[axis] != loop.rows:
                return whole
            return whole[(slice(None),) * axis + (slice(start, stop),)]

        calls += bind_chain(loop.steps, elision, tile)
    return calls


def _slots(loop: Loop, elision: Elision, blocks: list[Array]) -> dict[Tensor, Array]:
    """Allocate a tile for each inner tensor of the loop, shared where lifetimes allow."""
    last: dict[Tensor, int] = {}
    for number, step in enumerate(loop.steps):
        for tensor in step.inputs:
            last[elision.aliases[tensor].root] = number
    inner = set(loop.inner)
    slots: dict[Tensor, Array] = {}
    free = list(blocks)
    for number, step in enumerate(loop.steps):
        dying = [
            root for root in dict.fromkeys(elision.aliases[tensor].root for tensor in step.inputs)
            if root in inner and last[root] == number
        ]  # fmt: skip
        output = step.output
        if output in inner:
            nbytes = prod(output.shape) // loop.rows * loop.rows_per_tile * output.dtype.itemsize
            over = next((root for root in dying if _may_overwrite(step, root, elision)), None)
            if over is not None:
                dying.remove(over)
                memory = slots[over].view(np.uint8).reshape(-1)
            else:
                fit = next((block for block in free if block.nbytes >= nbytes), None)
                # by identity: arrays compare element by element
                free = [block for block in free if block is not fit]
                memory = np.empty(nbytes, np.uint8) if fit is None else fit
                if fit is None:
                    blocks.append(memory)
            slots[output] = memory[:nbytes].view(output.dtype)
        free += [slots[root].view(np.uint8) for root in dying]
    return slots


def _may_overwrite(step: Step, root: Tensor, elision: Elision) -> bool:
    output = step.output
    return (
        step.operator in ELEMENTWISE
        and root.shape == output.shape
        and root.dtype.itemsize == output.dtype.itemsize
        and all(
            elision.aliases[tensor].view == elision.aliases[root].view
            for tensor in step.inputs
            if elision.aliases[tensor].root is root
        )
    )
