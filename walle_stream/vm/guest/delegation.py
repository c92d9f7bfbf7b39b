"""Guard of ``yield from``: closing a suspended generator must not call a script's code.

Closing a generator that is suspended in ``yield from x`` calls ``x.close()``, and
the garbage collector may close generators during another run. So every source of
``yield from`` in a script passes ``yield_source``. It wraps any object that may have
such a method in a generator of ours. The standard library's own generators get the
same for their sources from a script.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import GeneratorType
from typing import Any, Final

YIELD_GUARD: Final = "@yield"
"""Name of ``yield_source`` in rewritten code, around the source of ``yield from``."""

# exactly these classes, no subclass: closing them runs no code
_HARMLESS: Final = frozenset(
    {GeneratorType, list, tuple, range, dict, set, frozenset, str, bytes, bytearray}
)


def yield_source(source: Any) -> Any:
    """Return an iterable without a script's ``close``.

    Returns:
        Generators and builtin containers unchanged. For anything else a generator
        of its items, which ignores sent values and returns None.
    """
    return source if type(source) in _HARMLESS else (item for item in source)


def merge(
    *iterables: Iterable[Any], key: Callable[[Any], Any] | None = None, reverse: bool = False
) -> Iterator[Any]:
    """Merge sorted inputs like ``heapq.merge``, which delegates to the last remaining input."""
    sources = map(yield_source, iterables)
    merged: Iterator[Any] = import_module("heapq").merge(*sources, key=key, reverse=reverse)
    return merged


def guard_views(module: Any) -> None:
    """Keep ``KeysView`` of ``_collections_abc`` from delegating to a script's object."""

    def keys(self: Any) -> Iterator[Any]:
        yield from yield_source(self._mapping)

    module.KeysView.__iter__ = keys
