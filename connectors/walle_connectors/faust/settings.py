"""What the cloud side takes from a pipeline's YAML: broker, topics, task.

Only the keys that are needed here are looked at; who owns the others (the connectors
``kafka`` of source and tunnel) refuses what is wrong with them on the device side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import ConfigDict, StringConstraints

from walle_connectors.brokers import Connection
from walle_connectors.faust.visits import VisitPolicy
from walle_connectors.sections import OwnModels, load_sections
from walle_stream.errors import SpecFileError
from walle_stream.spec.models import Task


class KafkaPart(Connection):
    """The keys of ``spec.source`` and ``spec.tunnel`` that are read here."""

    model_config = ConfigDict(extra="ignore")

    topic: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
    client_id: str = "walle-cloud"


_MODELS: Final = OwnModels("kafka", source=KafkaPart, tunnel=KafkaPart)


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
    loaded = load_sections(file, overrides, _MODELS)
    if not isinstance(loaded.tunnel, KafkaPart):
        raise SpecFileError(
            f"{file}: spec.tunnel.connector is {loaded.pipeline.spec.tunnel.connector!r}: the "
            "cloud side of that tunnel is part of walle run; use a pipeline whose tunnel is kafka"
        )
    return CloudPipeline(
        name=loaded.pipeline.metadata.name,
        features=loaded.tunnel,
        events=loaded.source if isinstance(loaded.source, KafkaPart) else None,
        tasks=tuple(task for task in loaded.tasks if isinstance(task, Task)),
        page_timeout_ms=loaded.pipeline.spec.sequence.page_timeout_ms,
        page_max_events=loaded.pipeline.spec.sequence.page_max_events,
    )


def baseline_of(pipeline: CloudPipeline) -> BaselinePipeline:
    """Return what the baseline needs of a pipeline.

    Args:
        pipeline: As loaded.

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
