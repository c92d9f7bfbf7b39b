"""Connectors, and other packages' kinds of definitions, found by entry points.

The framework never imports a connector by name. A user's own package declares an
entry point, or the YAML names a dotted path ``package.module:NAME``.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Final

from pydantic import BaseModel

from walle_stream.errors import SpecFileError
from walle_stream.types import Placing, partition_of

GROUP: Final = "walle_stream.connectors"
_ATTRIBUTES: Final = {
    "source": ("model", "tunnel_model"),
    "tunnel": ("tunnel_model", "model"),
    "deadLetters": ("letter_model",),
    "sinks": ("sink_model",),
}
"""Attributes of a connector that hold the model of its keys, by the key under ``spec``."""

_LACKS: Final = {
    "model": "is not a source: it has no `model` of its YAML keys",
    "tunnel_model": "is not a tunnel: it has no `model` of its YAML keys",
    "letter_model": "takes no dead letters: name one that does, such as 'kafka'",
    "sink_model": "takes no features: name one that does, such as 'parquet'",
}
KINDS_GROUP: Final = "walle_stream.kinds"
"""Entry point group of further kinds: by kind, a pydantic model of the whole document."""


def load_connector(name: str) -> Any:
    """Load a connector by its entry point's name, or a dotted path ``package.module:NAME``.

    Raises:
        SpecFileError: No connector has that name, or it cannot be imported.
    """
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise SpecFileError(f"connector {name!r} cannot be imported: {error}") from error
    for point in _points().select(name=name):
        try:
            return point.load()
        except ImportError as error:
            raise SpecFileError(
                f"connector {name!r} cannot be imported ({error}): install its extra"
            ) from error
    known = ", ".join(sorted(connector_names()))
    raise SpecFileError(f"there is no connector {name!r}: known are {known}")


def placing_of(source: Any, tunnel: Any) -> Placing:
    """Return the rule by which a pipeline with these connectors places its devices.

    The rule is the source's ``device_partition`` if its records have partitions already. Without
    one it is the tunnel's, which sends a message to its device's partition. The last choice is
    ``partition_of``.
    """
    rules = (getattr(each, "device_partition", None) for each in (source, tunnel))
    return next((each for each in rules if each is not None), partition_of)


def connector_names() -> tuple[str, ...]:
    """Return the names of all installed connectors."""
    return tuple(point.name for point in _points())


@cache
def _points() -> EntryPoints:
    # every call of entry_points reads the metadata of all installed packages
    return entry_points(group=GROUP)


class ConnectorModels(Mapping[str, type[BaseModel]]):
    """The YAML models of all connectors, each loaded at its first use.

    A name that is not installed raises ``KeyError``. A connector of another sort, such as a sink
    named as a source, raises ``SpecFileError``.
    """

    def __getitem__(self, name: str) -> type[BaseModel]:
        """Return the model of a connector's keys."""
        return _model_of(name, *_ATTRIBUTES["source"])

    def of_tunnel(self, name: str) -> type[BaseModel]:
        """Return the model of a connector's keys under ``spec.tunnel``."""
        return _model_of(name, *_ATTRIBUTES["tunnel"])

    def of_dead_letters(self, name: str) -> type[BaseModel]:
        """Return the model of a connector's keys under ``spec.deadLetters``."""
        return _model_of(name, *_ATTRIBUTES["deadLetters"])

    def of_sink(self, name: str) -> type[BaseModel]:
        """Return the model of a connector's keys under ``spec.sinks``."""
        return _model_of(name, *_ATTRIBUTES["sinks"])

    def having(self, part: str) -> dict[str, type[BaseModel]]:
        """Return the models of all connectors for a key under ``spec``, by name."""
        attributes = _ATTRIBUTES[part]
        return {
            name: _model_of(name, *attributes)
            for name in connector_names()
            if any(hasattr(load_connector(name), each) for each in attributes)
        }

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of installed sources and tunnels."""
        return iter(self.having("source"))

    def __len__(self) -> int:
        """Return the number of installed sources and tunnels."""
        return len(self.having("source"))


def _model_of(name: str, *attributes: str) -> type[BaseModel]:
    # the connector's first attribute of these
    if ":" not in name and name not in connector_names():
        raise KeyError(name)
    connector = load_connector(name)
    model = next(
        (getattr(connector, each) for each in attributes if hasattr(connector, each)), None
    )
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model
    raise SpecFileError(f"connector {name!r} {_LACKS[attributes[0]]}")


def further_kinds() -> Mapping[str, type[BaseModel]]:
    """Return the models of further kinds, by kind; kinds without their extra are left out."""
    kinds = {}
    for point in entry_points(group=KINDS_GROUP):
        try:
            kinds[point.name] = point.load()
        except ImportError:
            continue
    return kinds
