"""What the cloud side takes from a pipeline's YAML: broker, topics, task.

Few of the keys are needed here; all are checked by who owns them, the connector ``kafka``, so
that a misspelt one is refused as on the device side. It is found by its entry point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from walle_connectors.brokers import Connection, TopicName
from walle_connectors.faust.visits import VisitPolicy
from walle_connectors.sections import OwnModels, load_sections
from walle_stream.errors import SpecFileError
from walle_stream.spec.models import Task


class KafkaPart(Connection):
    """The keys of ``spec.source`` and ``spec.tunnel`` that are read here."""

    model_config = ConfigDict(extra="ignore")

    topic: TopicName
    client_id: str = "walle-cloud"


class LetterPart(KafkaPart):
    """The keys of ``spec.deadLetters``."""

    max_bytes: int = 2**20


_CONNECTOR: Final = "kafka"


def _owners_models() -> OwnModels:
    (point,) = entry_points(group="walle_stream.connectors", name=_CONNECTOR)
    owner: Any = point.load()
    return OwnModels(
        _CONNECTOR,
        source=owner.model,
        tunnel=owner.tunnel_model,
        dead_letters=owner.letter_model,
    )


@dataclass(frozen=True, slots=True)
class CloudPipeline:
    """A pipeline as the cloud side sees it."""

    name: str
    features: KafkaPart
    """Where the tunnel's records are."""
    events: KafkaPart | None
    """Where raw events are; None where they never leave the devices."""
    tasks: tuple[Task, ...]
    """With absolute paths of scripts; packages are left out."""
    page_timeout_ms: int | None
    page_max_events: int
    letters: LetterPart | None = None
    """Where refused records go; None where they are only told."""
    masked_values: frozenset[str] = frozenset()
    """From ``${VAR}``: they must not appear in a log."""


@dataclass(frozen=True, slots=True)
class BaselinePipeline:
    """A pipeline as the cloud-only baseline sees it."""

    name: str
    features: KafkaPart
    events: KafkaPart
    task: Task
    policy: VisitPolicy


def load_cloud_pipeline(file: Path, overrides: Sequence[str] = ()) -> CloudPipeline:
    """Read a pipeline's YAML.

    Args:
        file: The pipeline.
        overrides: ``a.b=c``, as ``walle run --set``.

    Raises:
        SpecFileError: It is wrong, or its tunnel leads over no broker.
    """
    loaded = load_sections(file, overrides, _owners_models())
    features, events = _part(loaded.tunnel, KafkaPart), _part(loaded.source, KafkaPart)
    if features is None:
        raise SpecFileError(
            f"{file}: spec.tunnel.connector is {loaded.pipeline.spec.tunnel.connector!r}: the "
            "cloud side of that tunnel is part of walle run; use a pipeline whose tunnel is kafka"
        )
    return CloudPipeline(
        name=loaded.pipeline.metadata.name,
        features=features,
        events=events,
        tasks=tuple(task for task in loaded.tasks if isinstance(task, Task)),
        page_timeout_ms=loaded.pipeline.spec.sequence.page_timeout_ms,
        page_max_events=loaded.pipeline.spec.sequence.page_max_events,
        letters=_part(loaded.dead_letters, LetterPart),
        masked_values=loaded.masked_values,
    )


def _part[P: KafkaPart](model: BaseModel | None, kind: type[P]) -> P | None:
    if not isinstance(model, Connection):
        return None
    given = kind.model_fields.keys() & model.model_fields_set
    return kind.model_validate({name: getattr(model, name) for name in given})


def baseline_of(pipeline: CloudPipeline) -> BaselinePipeline:
    """Return what the baseline needs of a pipeline.

    Raises:
        SpecFileError: It is no pipeline that the baseline can do.
    """
    if pipeline.events is None:
        raise SpecFileError(
            f"pipeline {pipeline.name!r}: the baseline reads raw events from a broker: make "
            "spec.source.connector kafka"
        )
    tasks = [task for task in pipeline.tasks if _is_on_exit(task)]
    if len(tasks) != 1:
        raise SpecFileError(
            f"pipeline {pipeline.name!r}: the baseline does one task, triggered by page_exit "
            f"alone, and found {len(tasks)}"
        )
    spec = tasks[0].spec
    return BaselinePipeline(
        name=pipeline.name,
        features=pipeline.features,
        events=pipeline.events,
        task=tasks[0],
        policy=VisitPolicy(
            page_timeout_ms=pipeline.page_timeout_ms,
            page_max_events=pipeline.page_max_events,
            pages=None if spec.pages is None else frozenset(spec.pages),
            fields=None if spec.fields is None else frozenset(spec.fields),
        ),
    )


def _is_on_exit(task: Task) -> bool:
    return [list(trigger.sequence) for trigger in task.spec.triggers] == [["page_exit"]]
