"""Check that no two parts of a pipeline read or write the same place.

A pipeline that reads its own output never ends: each dead letter, read as an event, makes
another dead letter.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol, runtime_checkable

from walle_stream.spec.document import Key


@runtime_checkable
class HasPlaces(Protocol):
    """A connector's model that knows its places; other models are not checked."""

    def places(self) -> Mapping[str, frozenset[Hashable]]:
        """Return the places by key, each as all the identities by which it can be reached."""


def find_shared(parts: Mapping[Key, object]) -> Iterator[tuple[Key, str]]:
    """Yield the later key and a message for each place that two keys name.

    ``parts`` has the connectors' models by their key under ``spec``.
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
