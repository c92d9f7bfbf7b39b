"""Kinds of definitions that others bring: entry points, for editors and ``walle validate``."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from pydantic import BaseModel

KINDS_GROUP: Final = "walle_stream.kinds"
"""Entry point group of further kinds: a pydantic model of the whole document, by its kind."""


def further_kinds() -> Mapping[str, type[BaseModel]]:
    """Return the models by kind; those whose extra is not installed are left out."""
    kinds = {}
    for point in entry_points(group=KINDS_GROUP):
        try:
            kinds[point.name] = point.load()
        except ImportError:
            continue
    return kinds
