"""Where the parts of a pipeline read and write: no place may be that of two of them.

A pipeline that reads what it writes never ends: each dead letter, read as an event, makes
another one.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol, runtime_checkable

from walle_stream.spec.document import Key


@runtime_checkable
class HasPlaces(Protocol):
    """A connector's model that knows where it reads or writes; others are not looked at."""

    def places(self) -> Mapping[str, frozenset[Hashable]]:
        """Return by key what identifies the place, in all the ways that it can be reached."""


def find_shared(parts: Mapping[Key, object]) -> Iterator[tuple[Key, str]]:
    """Yield places that belong to two keys: the later key, and what is wrong with it.

    ``parts`` are connectors' models by their key under ``spec``.
    """
    seen: dict[Hashable, str] = {}
    for part, model in parts.items():
        if not isinstance(model, HasPlaces):
            continue
        for name, places in model.places().items():
            other = next((seen[place] for place in places if place in seen), None)
            if other is not None:
                yield ("spec", *part, name), f"is {other}, too: give each its own"
            seen |= dict.fromkeys(places, ".".join(["spec", *map(str, part), name]))
