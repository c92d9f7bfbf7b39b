"""A pipeline's YAML as the commands of one connector read it.

Models check the connector's own sections. Sections of other connectors are not checked, so those
connectors, such as a simulator beside a tunnel over Kafka, need not be installed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from walle_stream.spec.loader import LoadedPipeline, UnreadPackage, load_pipeline


class AnyKeys(BaseModel):
    """An unchecked section of another connector."""

    model_config = ConfigDict(extra="allow", frozen=True)


class OwnModels(Mapping[str, type[BaseModel]]):
    """Models for ``load_pipeline``: those of one connector, and ``AnyKeys`` for all others."""

    def __init__(
        self,
        connector: str,
        *,
        source: type[BaseModel] = AnyKeys,
        tunnel: type[BaseModel] = AnyKeys,
        dead_letters: type[BaseModel] = AnyKeys,
        sink: Callable[[str], type[BaseModel]] = lambda _name: AnyKeys,
    ) -> None:
        """Keep the models; YAML names the connector, or an object in its module."""
        self._connector = connector
        self._source, self._tunnel, self._dead_letters = source, tunnel, dead_letters
        self._sink = sink

    def __getitem__(self, name: str) -> type[BaseModel]:
        """Return the model of a section ``spec.source``."""
        return self._source if self._is_own(name) else AnyKeys

    def of_tunnel(self, name: str) -> type[BaseModel]:
        """Return the model of a section ``spec.tunnel``."""
        return self._tunnel if self._is_own(name) else AnyKeys

    def of_dead_letters(self, name: str) -> type[BaseModel]:
        """Return the model of a section ``spec.deadLetters``."""
        return self._dead_letters if self._is_own(name) else AnyKeys

    def of_sink(self, name: str) -> type[BaseModel]:
        """Return the model of a section of ``spec.sinks``."""
        return self._sink(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the known names: the connector's own."""
        return iter((self._connector,))

    def __len__(self) -> int:
        """Return 1, the number of known names."""
        return 1

    def _is_own(self, name: str) -> bool:
        return name == self._connector or name.startswith(f"walle_connectors.{self._connector}:")


def load_sections(
    file: Path, overrides: Sequence[str], models: OwnModels
) -> LoadedPipeline[UnreadPackage]:
    """Load a pipeline without reading the packages of its tasks.

    Raises:
        SpecFileError: The definition is wrong.
    """
    return load_pipeline(
        file, overrides, connector_models=models, read_package=UnreadPackage.of_file
    )
