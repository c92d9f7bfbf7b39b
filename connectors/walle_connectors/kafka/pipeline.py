"""The Kafka sections of a pipeline's YAML: connections and needed topics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from walle_connectors.brokers import Connection
from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.topics import tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_connectors.sections import OwnModels, load_sections
from walle_stream.errors import SpecFileError
from walle_stream.spec.connectors import ConnectorModels
from walle_stream.spec.loader import LoadedPipeline, UnreadPackage


class KafkaPart(msgspec.Struct, frozen=True):
    """A section of a pipeline that uses Kafka."""

    place: str
    """``spec.source``, ``spec.tunnel``, ``spec.deadLetters`` or ``spec.sinks.NAME``."""
    connection: Connection
    topics: list[NeededTopic]


_MODELS: Final = OwnModels(
    CONNECTOR.name,
    source=CONNECTOR.model,
    tunnel=CONNECTOR.tunnel_model,
    dead_letters=CONNECTOR.letter_model,
    sink=ConnectorModels().of_sink,
)


def load_kafka(file: Path, overrides: Sequence[str] = ()) -> LoadedPipeline[UnreadPackage]:
    """Load a pipeline for its sections that use Kafka.

    Raises:
        SpecFileError: The definition is wrong.
    """
    return load_sections(file, overrides, _MODELS)


def kafka_parts(loaded: LoadedPipeline[UnreadPackage]) -> list[KafkaPart]:
    """Return the sections of a pipeline that use Kafka: source, tunnel, dead letters, sinks.

    Raises:
        SpecFileError: No section uses Kafka.
    """
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
    for name, sink in loaded.sinks.items():
        if isinstance(sink, KafkaSinkModel):
            place = f"spec.sinks.{name}"
            topic = NeededTopic(sink.topic, f"{place}.topic", 0, sink.max_bytes)
            parts.append(KafkaPart(place, sink, [topic]))
    if not parts:
        raise SpecFileError(
            f"{loaded.file}: none of spec.source, spec.tunnel, spec.deadLetters and spec.sinks has "
            "the connector 'kafka': give a pipeline that uses Kafka"
        )
    return parts
