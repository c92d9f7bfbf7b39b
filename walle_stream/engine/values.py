"""Values at run time: tensors, sequences, maps and empty optionals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from walle_stream.engine.program import Array

type Data = Array | list["Data"] | Maps[Array] | None
"""A value at run time: a tensor's elements, a sequence, maps, or an empty optional."""


@dataclass(frozen=True, slots=True)
class Maps[T]:
    """A map, or a sequence of maps that have the same keys, as two tensors."""

    keys: T
    """``(E,)`` of int64 or strings."""
    values: T
    """``(E,)`` for a map, ``(N, E)`` for a sequence."""


def arrays_of(data: Data) -> list[Array]:
    """Return the arrays of a value: an array itself, those of a sequence in order, or none."""
    if isinstance(data, list):
        return [array for element in data for array in arrays_of(element)]
    if isinstance(data, Maps):
        return [data.keys, data.values]
    return [] if data is None else [data]


def plain(data: Data) -> Any:
    """Return a value as callers get it: maps become dicts, whose values are Python's own."""
    if isinstance(data, list):
        return [plain(element) for element in data]
    if not isinstance(data, Maps):
        return data
    keys, rows = data.keys.tolist(), data.values.tolist()
    if data.values.ndim == 1:
        return dict(zip(keys, rows, strict=True))
    return [dict(zip(keys, row, strict=True)) for row in rows]


def mapped(data: Any, function: Callable[[Any], Any], gather: Callable[..., Any] = list) -> Any:
    """Apply a function to each tensor of a value; ``gather`` collects those of a sequence."""
    if data is None:
        return None
    if isinstance(data, list):
        return gather(mapped(element, function, gather) for element in data)
    if isinstance(data, Maps):
        return Maps(function(data.keys), function(data.values))
    return function(data)
