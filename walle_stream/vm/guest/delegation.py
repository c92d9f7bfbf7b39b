"""What a suspended generator waits for: closing it must not call a script's code.

Closing a generator that is suspended in ``yield from x`` calls ``x.close()``,
and the garbage collector closes generators in the run of whoever is next. So
what a script's generators delegate to passes ``yield_source``, which puts a
generator of ours before everything that may have such a method; and so does
what the standard library's own generators get from a script.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import GeneratorType
from typing import Any, Final

YIELD_GUARD: Final = "@yield"
"""Name in rewritten code of ``yield_source``, around what ``yield from`` is given."""

# exactly these, no subclass: nothing to close, or closed without running anything
_HARMLESS: Final = frozenset(
    {GeneratorType, list, tuple, range, dict, set, frozenset, str, bytes, bytearray}
)


def yield_source(source: Any) -> Any:
    """Return something to iterate over whose ``close`` is none of a script's.

    Returns:
        Generators and builtin containers as they are, for anything else a
        generator of its items: what is sent to it is lost, and it returns None.
    """
    return source if type(source) in _HARMLESS else (item for item in source)


def merge(
    *iterables: Iterable[Any], key: Callable[[Any], Any] | None = None, reverse: bool = False
) -> Iterator[Any]:
    """Merge sorted inputs as ``heapq.merge`` does, which delegates to the last one left."""
    sources = map(yield_source, iterables)
    merged: Iterator[Any] = import_module("heapq").merge(*sources, key=key, reverse=reverse)
    return merged


def guard_views(module: Any) -> None:
    """Let ``KeysView`` of ``_collections_abc`` delegate to no object of a script."""

    def keys(self: Any) -> Iterator[Any]:
        yield from yield_source(self._mapping)

    module.KeysView.__iter__ = keys
