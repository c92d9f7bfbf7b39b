"""Constants that elementwise steps read spread, laid out so that numpy's inner loops are long.

A bias of 96 channels, spread over the places of an image by strides of 0, makes
numpy begin a loop anew every 96 elements, which takes as long as the elements do.
Laid out some dozen times side by side it is read as the image is.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array

RUN_MIN: Final = 1 << 10
"""Elements of an inner loop beyond which beginning it no longer counts."""

BLOCK_MAX_BYTES: Final = 1 << 16
"""Of a constant that is laid out: it must leave cache to what it is read with."""

_SCALARS_ARE_FAST: Final = frozenset({Operator.ADD, Operator.SUB, Operator.MUL, Operator.DIV})
_SCALARS_ARE_SLOW: Final = frozenset({Operator.MINIMUM, Operator.MAXIMUM})
_TAKEN: Final = _SCALARS_ARE_FAST | _SCALARS_ARE_SLOW

type Operands = tuple[list[Array], Array]


class SpreadConstants:
    """Lays constants out, each once. Threads that come together may make one twice."""

    def __init__(self) -> None:
        """Begin with none."""
        self._blocks: dict[Hashable, Array] = {}

    def laid_out(
        self, operator: Operator, inputs: Sequence[Array], roots: Sequence[Array | None],
        output: Array,
    ) -> Operands:  # fmt: skip
        """Give views of the same elements that an elementwise operator goes through faster.

        ``roots`` has for each input the constant that it is a view of, which lives as long as this
        does, or None. Inputs and output come back as they were where nothing is to be won.
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
            return self._periodic(operands, number, root, output)
        operands[number] = self._by_rows(operands[number], root)
        return operands, output

    def _periodic(self, operands: list[Array], number: int, root: Array, output: Array) -> Operands:
        """Read all as rows, each as long as some periods of the constant."""
        view = operands[number]
        axis = _dense_from(view)
        if any(view.strides[at] for at in range(axis) if view.shape[at] > 1):
            return operands, output
        period = prod(view.shape[axis:])
        times = _times(prod(view.shape[:axis]), period, view.itemsize)
        if period >= RUN_MIN or times == 1:
            return operands, output
        key = (*_key(view, root, axis), times)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = np.tile(view[(0,) * axis].reshape(-1), times)
        shape = (output.size // block.size, block.size)
        views = [array.reshape(shape) for at, array in enumerate(operands) if at != number]
        views.insert(number, np.broadcast_to(block, shape))
        return views, output.reshape(shape)

    def _by_rows(self, view: Array, root: Array) -> Array:
        """Lay a constant out over the last axes: what it is read with has gaps before them."""
        shape = view.shape
        axis = view.ndim
        while axis and prod(shape[axis:]) < RUN_MIN:
            axis -= 1
        block = view[(0,) * axis]
        if block.flags.c_contiguous or block.nbytes > BLOCK_MAX_BYTES:
            return view
        if any(view.strides[at] for at in range(axis) if shape[at] > 1):
            return view
        key = _key(view, root, axis)
        result = self._blocks.get(key)
        if result is None:
            result = self._blocks[key] = np.ascontiguousarray(block)
        return np.broadcast_to(result, shape)


def _is_spread(operator: Operator, view: Array) -> bool:
    moving = [step for size, step in zip(view.shape, view.strides, strict=True) if size > 1]
    return 0 in moving and (operator in _SCALARS_ARE_SLOW or any(moving))


def _dense_from(view: Array) -> int:
    """Give the first of the last axes that lie one behind the other."""
    axis, step = view.ndim, view.itemsize
    while axis and (view.shape[axis - 1] == 1 or view.strides[axis - 1] == step):
        axis -= 1
        step *= view.shape[axis]
    return axis


@lru_cache(1 << 10)
def _times(repeats: int, period: int, itemsize: int) -> int:
    """Give how many periods a row has: it divides all of them, the fewest that are long enough."""
    most = min(repeats, max(1, BLOCK_MAX_BYTES // (period * itemsize)))
    enough = -(-RUN_MIN // period)
    rows = chain(range(enough, most + 1), range(min(enough - 1, most), 0, -1))
    return next((row for row in rows if repeats % row == 0), 1)


def _key(view: Array, root: Array, axis: int) -> tuple[Hashable, ...]:
    first = view.ctypes.data - root.ctypes.data
    return id(root), first, view.shape[axis:], view.strides[axis:]
