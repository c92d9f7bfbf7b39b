"""Layout of broadcast constants that gives numpy's elementwise steps long inner loops.

If strides of 0 broadcast a bias of 96 channels over an image, numpy starts a new inner loop every
96 elements. Each start takes as long as the 96 elements. A few dozen copies of the bias side by
side are read like the image.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.derived import SHARED
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array

RUN_MIN: Final = 1 << 10
"""Elements of an inner loop for which the time of its start is negligible."""

BLOCK_MAX_BYTES: Final = 1 << 16
"""Largest size of copies of a constant, which must leave cache for the other operands."""

_SCALARS_ARE_FAST: Final = frozenset({Operator.ADD, Operator.SUB, Operator.MUL, Operator.DIV})
_SCALARS_ARE_SLOW: Final = frozenset({Operator.MINIMUM, Operator.MAXIMUM})
_TAKEN: Final = _SCALARS_ARE_FAST | _SCALARS_ARE_SLOW

type Operands = tuple[list[Array], Array]


def laid_out(
    operator: Operator, inputs: Sequence[Array], roots: Sequence[Array | None],
    output: Array,
) -> Operands:  # fmt: skip
    """Return views of the same elements that an elementwise operator processes faster.

    ``roots`` has for each input the constant of which it is a view, or None. Inputs and output
    are returned unchanged if nothing is gained.
    """
    operands = list(inputs)
    spread = [
        number for number, root in enumerate(roots)
        if root is not None and _is_spread(operator, operands[number])
    ]  # fmt: skip
    if operator not in _TAKEN or len(spread) != 1 or not output.size:
        return operands, output
    (number,) = spread
    root = roots[number]
    assert root is not None  # noqa: S101
    others = [array for at, array in enumerate(operands) if at != number]
    if all(array.flags.c_contiguous for array in (*others, output)):
        return _periodic(operands, number, root, output)
    operands[number] = _by_rows(operands[number], root)
    return operands, output


def _periodic(operands: list[Array], number: int, root: Array, output: Array) -> Operands:
    """View all operands as rows, each as long as several periods of the constant."""
    view = operands[number]
    axis = _dense_from(view)
    if any(view.strides[at] for at in range(axis) if view.shape[at] > 1):
        return operands, output
    period = prod(view.shape[axis:])
    times = _times(prod(view.shape[:axis]), period, view.itemsize)
    if period >= RUN_MIN or times == 1:
        return operands, output
    longest = 1 << (times - 1).bit_length()  # a few lengths, whatever the shapes of plans
    tiled = SHARED.of(
        (longest, *_recipe(view, root, axis)), [root],
        lambda: np.tile(view[(0,) * axis].reshape(-1), longest),
    )  # fmt: skip
    block = tiled[: times * period]
    shape = (output.size // block.size, block.size)
    views = [array.reshape(shape) for at, array in enumerate(operands) if at != number]
    views.insert(number, np.broadcast_to(block, shape))
    return views, output.reshape(shape)


def _by_rows(view: Array, root: Array) -> Array:
    """Lay out a constant over its last axes, if the other operands have gaps between rows."""
    shape = view.shape
    axis = view.ndim
    while axis and prod(shape[axis:]) < RUN_MIN:
        axis -= 1
    block = view[(0,) * axis]
    if block.flags.c_contiguous or block.nbytes > BLOCK_MAX_BYTES:
        return view
    if any(view.strides[at] for at in range(axis) if shape[at] > 1):
        return view
    result = SHARED.of(_recipe(view, root, axis), [root], lambda: np.ascontiguousarray(block))
    return np.broadcast_to(result, shape)


def _is_spread(operator: Operator, view: Array) -> bool:
    moving = [step for size, step in zip(view.shape, view.strides, strict=True) if size > 1]
    return 0 in moving and (operator in _SCALARS_ARE_SLOW or any(moving))


def _dense_from(view: Array) -> int:
    """Return the first of the trailing axes that are contiguous together."""
    axis, step = view.ndim, view.itemsize
    while axis and (view.shape[axis - 1] == 1 or view.strides[axis - 1] == step):
        axis -= 1
        step *= view.shape[axis]
    return axis


@lru_cache(1 << 10)
def _times(repeats: int, period: int, itemsize: int) -> int:
    """Return the periods per row: a divisor of ``repeats``, the least that makes rows long enough.

    If all such rows exceed the limit, it is the largest divisor below.
    """
    most = min(repeats, max(1, BLOCK_MAX_BYTES // (period * itemsize)))
    enough = -(-RUN_MIN // period)
    rows = chain(range(enough, most + 1), range(min(enough - 1, most), 0, -1))
    return next((row for row in rows if repeats % row == 0), 1)


def _recipe(view: Array, root: Array, axis: int) -> tuple[Hashable, ...]:
    first = view.ctypes.data - root.ctypes.data
    return first, view.shape[axis:], view.strides[axis:]
