"""What a pipeline's YAML says of Kafka: connections and the topics that it needs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from walle_connectors.brokers import Connection
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.topics import NeededTopic, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import SpecFileError
from walle_stream.spec.loader import load_pipeline


class _AnyKeys(BaseModel):
    # another connector's section is its own business
    model_config = ConfigDict(extra="allow")


class _Package(msgspec.Struct, frozen=True):
    name: str


class KafkaPart(msgspec.Struct, frozen=True):
    """One section of a pipeline that leads to Kafka."""

    place: str
    """``spec.source``, ``spec.tunnel`` or ``spec.deadLetters``."""
    connection: Connection
    topics: list[NeededTopic]


class _Models(Mapping[str, type[BaseModel]]):
    def __getitem__(self, name: str) -> type[BaseModel]:
        model: type[BaseModel] = getattr(CONNECTOR, "model", _AnyKeys)
        return model if _is_ours(name) else _AnyKeys

    def of_tunnel(self, name: str) -> type[BaseModel]:
        return KafkaTunnelModel if _is_ours(name) else _AnyKeys

    def of_dead_letters(self, name: str) -> type[BaseModel]:
        return KafkaDeadLetterModel if _is_ours(name) else _AnyKeys

    def __iter__(self) -> Iterator[str]:
        return iter((CONNECTOR.name,))

    def __len__(self) -> int:
        return 1


def _is_ours(name: str) -> bool:
    return name == CONNECTOR.name or name.startswith("walle_connectors.kafka:")


def kafka_parts(file: Path, overrides: Sequence[str] = ()) -> list[KafkaPart]:
    """Return what a pipeline has to do with Kafka.

    Args:
        file: The pipeline's YAML.
        overrides: ``a.b=c``.

    Returns:
        One to three parts: source, tunnel, dead letters.

    Raises:
        SpecFileError: The definition is wrong, or leads to no broker.
    """
    loaded = load_pipeline(
        file,
        overrides,
        connector_models=_Models(),
        read_package=lambda path: _Package(path.stem),
    )
    partitions = loaded.pipeline.spec.runtime.partitions
    parts = []
    source: Any = loaded.source
    if isinstance(source, Connection):
        topic = NeededTopic(getattr(source, "topic", ""), "spec.source.topic", partitions)
        parts.append(KafkaPart("spec.source", source, [topic]))
    tunnel = loaded.tunnel
    if isinstance(tunnel, KafkaTunnelModel):
        parts.append(KafkaPart("spec.tunnel", tunnel, tunnel_topics(tunnel, partitions)))
    letters = loaded.dead_letters
    if isinstance(letters, KafkaDeadLetterModel):
        topic = NeededTopic(letters.topic, "spec.deadLetters.topic")
        parts.append(KafkaPart("spec.deadLetters", letters, [topic]))
    if not parts:
        raise SpecFileError(
            f"{file}: none of spec.source, spec.tunnel and spec.deadLetters has the connector "
            "'kafka': there is nothing to look at"
        )
    return parts
