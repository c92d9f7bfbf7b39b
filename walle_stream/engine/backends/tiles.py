"""Loops bound to their tiles: calls of all steps for one tile, then for the next."""

from math import prod

import numpy as np

from walle_stream.engine.backends.chains import ViewOf, bind_chain
from walle_stream.engine.backends.library import Bound, strided
from walle_stream.engine.backends.spreading import SpreadConstants
from walle_stream.engine.operators import ELEMENTWISE
from walle_stream.engine.planning.elision import Elision
from walle_stream.engine.planning.loops import Loop
from walle_stream.engine.program import Array, Step, Tensor


def tiled(loop: Loop, elision: Elision, view_of: ViewOf, constants: SpreadConstants) -> list[Bound]:
    """Bind the steps of a loop of several tiles, tile by tile; see ``bind_chain``."""
    slots = _slots(loop, elision)
    calls: list[Bound] = []
    for start in range(0, loop.rows, loop.rows_per_tile):
        stop = min(start + loop.rows_per_tile, loop.rows)

        def tile(tensor: Tensor, start: int = start, stop: int = stop) -> Array:
            seen = elision.seen[tensor]
            if seen.root in slots:
                shape = list(tensor.shape)
                shape[loop.axis] = stop - start
                return strided(slots[seen.root], shape, seen.view)
            whole = view_of(tensor)
            if not _is_cut(tensor, loop):
                return whole
            return whole[(slice(None),) * loop.axis + (slice(start, stop),)]

        calls += bind_chain(loop.steps, elision, tile, constants)
    return calls


def _is_cut(tensor: Tensor, loop: Loop) -> bool:
    shape = tensor.shape
    return len(shape) > loop.axis and shape[loop.axis] == loop.rows


def _slots(loop: Loop, elision: Elision) -> dict[Tensor, Array]:
    """Give each tensor of the loop alone a tile of memory, shared where lives allow."""
    last: dict[Tensor, int] = {}
    for number, step in enumerate(loop.steps):
        for each in step.inputs:
            last[elision.seen[each].root] = number
    inner = set(loop.inner)
    slots: dict[Tensor, Array] = {}
    free: list[Array] = []
    for number, step in enumerate(loop.steps):
        dying = [
            root for root in dict.fromkeys(elision.seen[each].root for each in step.inputs)
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
                fit = next((each for each in free if each.nbytes >= nbytes), None)
                # by identity: arrays compare element by element
                free = [each for each in free if each is not fit]
                memory = np.empty(nbytes, np.uint8) if fit is None else fit
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
            elision.seen[each].view == elision.seen[root].view
            for each in step.inputs
            if elision.seen[each].root is root
        )
    )
