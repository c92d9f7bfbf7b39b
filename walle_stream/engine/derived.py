"""Arrays that are computed from constants of a model, each once in a process.

Plans for other shapes fold the same constants, lay out the same weights and repeat the same biases.
An entry lives as long as its sources and its result, so a plan that is dropped leaves nothing.
"""

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from walle_stream.engine.program import Array, Step

BY_VALUE_MAX_BYTES: Final = 64
"""A smaller source counts by its elements: rules make numbers such as an epsilon each time."""


class Derived:
    """Results by recipe and sources. Thread-safe; two threads may compute one twice.

    A source that is itself a result counts by its own recipe: its memory may be freed before a
    later plan computes it again.
    """

    def __init__(self) -> None:
        """Start without results."""
        # no lock: a garbage collection may call back in any line, and each change is atomic
        self._results: dict[Hashable, _Result] = {}
        self._made: dict[int, _Result] = {}
        """The same results by the id of the array that owns their memory."""
        self._keys: dict[int, set[Hashable]] = {}
        """Keys of the results that come from an array, by its id."""

    def of(self, recipe: Hashable, sources: Sequence[Array], make: Callable[[], Array]) -> Array:
        """Return the result of a recipe for sources; ``make`` computes it if no plan has it.

        Sources and result must not be written to, as plans share them.
        """
        origins = [self._origin(source) for source in sources]
        key = recipe, tuple(origin for origin, _ in origins)
        known = self._results.get(key)
        found = None if known is None else known.array()
        if found is None:
            found = make()
            if not found.dtype.hasobject:
                self._keep(key, frozenset().union(*(leaves for _, leaves in origins)), found)
        return found

    def replace(self, result: Array, better: Array) -> None:
        """Return another array of the same elements from now on, in place of a result."""
        known = self._made.get(id(_owner(result)))
        if known is not None and known.place == _place(result):
            self._keep(known.key, known.leaves, better)

    def _origin(self, source: Array) -> tuple[Hashable, frozenset[int]]:
        owner, place = _owner(source), _place(source)
        if owner.nbytes <= BY_VALUE_MAX_BYTES and not owner.dtype.hasobject:
            offset = place[0] - owner.ctypes.data
            return (owner.ravel("K").tobytes(), offset, *place[1:]), frozenset()
        known = self._made.get(id(owner))
        if known is not None:  # perhaps a view of it
            return (known.key, place[0] - known.place[0], *place[1:]), known.leaves
        if id(owner) not in self._keys:
            self._keys[id(owner)] = set()
            # a place says nothing any more when another array may have the memory
            weakref.finalize(owner, self._freed, id(owner)).atexit = False
        return place, frozenset([id(owner)])

    def _keep(self, key: Hashable, leaves: frozenset[int], array: Array) -> None:
        result = _Result(key, leaves, array, self._lost)
        if result.owned in self._keys or not leaves <= self._keys.keys():
            return  # a view of a source needs no entry, and a source may be freed by now
        self._results[key] = self._made[result.owned] = result
        for leaf in leaves:
            self._keys[leaf].add(key)

    def _lost(self, result: "_Result") -> None:
        if self._made.get(result.owned) is result:
            del self._made[result.owned]
        if self._results.get(result.key) is result:
            del self._results[result.key]
            for leaf in result.leaves:
                self._keys.get(leaf, set()).discard(result.key)

    def _freed(self, owner: int) -> None:
        for key in self._keys.pop(owner, ()):
            result = self._results.pop(key, None)
            if result is not None:
                self._made.pop(result.owned, None)


class _Result:
    """A view of memory that lives elsewhere, as its users may hold other views."""

    __slots__ = (
        "_dtype", "_offset", "_owner", "_shape", "_strides", "key", "leaves", "owned", "place",
    )  # fmt: skip

    def __init__(
        self, key: Hashable, leaves: frozenset[int], array: Array,
        lost: "Callable[[_Result], None]",
    ) -> None:  # fmt: skip
        self.key, self.leaves, self.place = key, leaves, _place(array)
        owner = _owner(array)
        self.owned = id(owner)
        self._owner = weakref.ref(owner, lambda _: lost(self))
        self._shape, self._strides, self._dtype = array.shape, array.strides, array.dtype
        self._offset = array.ctypes.data - owner.ctypes.data

    def array(self) -> Array | None:
        owner = self._owner()
        if owner is None:
            return None
        memory = owner.ravel("K").view(np.uint8)
        found: Array = np.ndarray(self._shape, self._dtype, memory, self._offset, self._strides)
        found.flags.writeable = False
        return found


SHARED: Final = Derived()
"""The results of all models: an entry is known by the memory of its sources."""


def recipe_of(step: Step) -> Hashable | None:
    """Return the work of a step without its inputs; None if parameters cannot be compared."""
    recipe = step.operator, step.output.dtype.str, _frozen(step.parameters)
    try:
        hash(recipe)
    except TypeError:
        return None
    return recipe


def _frozen(value: Any) -> Any:
    if isinstance(value, float | np.generic):
        return repr(value)  # 0.0 equals -0.0, and no NaN equals itself
    if isinstance(value, Mapping):
        return tuple((name, _frozen(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value


def _owner(array: Array) -> Array:
    base: Any = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        base = getattr(base, "base", None)  # as_strided puts an object of its own between
    return array


def _place(array: Array) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.strides, array.dtype.str
