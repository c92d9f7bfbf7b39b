"""Sorting, taking and putting of rows by index, and search for nonzero elements."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.testing.toy.binary import of_two
from walle_stream.testing.toy.elements import Elements, Value, fitted

_INT64: Final = np.dtype(np.int64)

_COMBINED: Final[Mapping[str, Operator]] = {
    "add": Operator.ADD, "mul": Operator.MUL, "minimum": Operator.MINIMUM,
    "maximum": Operator.MAXIMUM,
}  # fmt: skip


def argsort(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Return sorting indices; see ``Operator.ARGSORT``. A nan is the greatest."""
    (x,) = inputs
    length = x.shape[-1]
    is_descending = bool(parameters.get("descending"))
    made: Elements = []
    for start in range(0, len(x.elements), length or 1):
        line = x.elements[start : start + length]
        keys = [(1, 0) if each != each else (0, each) for each in line]  # noqa: PLR0124  # nan
        made.extend(sorted(range(length), key=keys.__getitem__, reverse=is_descending))
    return Value(x.shape, _INT64, made)


def take(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
    """Read rows; see ``Operator.TAKE``."""
    data, indices = inputs
    outer, count, inner = data.shape
    starts = [each * inner for each in _checked(indices.elements, count)]
    made: Elements = []
    for number in range(outer):
        base = number * count * inner
        for each in starts:
            made.extend(data.elements[base + each : base + each + inner])
    return Value((outer, len(starts), inner), data.dtype, made)


def put(inputs: Sequence[Value], parameters: Mapping[str, Any]) -> Value:
    """Write rows; see ``Operator.PUT``."""
    data, indices, updates = inputs
    count, inner = data.shape
    which = _COMBINED.get(parameters.get("reduction", "none"))
    combine = None if which is None else of_two(which, data.dtype)
    made = [*data.elements]
    for number, each in enumerate(_checked(indices.elements, count)):
        row = updates.elements[number * inner : (number + 1) * inner]
        there = slice(each * inner, (each + 1) * inner)
        made[there] = row if combine is None else fitted(map(combine, made[there], row), data.dtype)
    return Value(data.shape, data.dtype, made)


def nonzero(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
    """Return indices of nonzero elements; see ``Operator.NONZERO``."""
    found = [place for place, each in enumerate(inputs[0].elements) if each]
    return Value((len(found),), _INT64, found)


def _checked(indices: Elements, count: int) -> Elements:
    for each in indices:
        if not 0 <= each < count:
            raise IndexError(f"index {each} is not in 0 .. {count - 1}")
    return indices
