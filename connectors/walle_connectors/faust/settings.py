"""What the cloud side takes from a pipeline's YAML: broker, topics, task.

Few of the keys are needed here; all are checked by who owns them, the connector ``kafka``, so
that a misspelt one is refused as on the device side. It is found by its entry point.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from walle_connectors.brokers import Connection
from walle_connectors.faust.visits import VisitPolicy
from walle_stream.errors import SpecFileError, TunnelError
from walle_stream.spec.loader import load_pipeline
from walle_stream.spec.models import Task

_CONNECTOR = "kafka"


class _Partial(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class KafkaPart(Connection):
    """The keys of ``spec.source`` and ``spec.tunnel`` that are read here."""

    model_config = ConfigDict(extra="ignore")

    topic: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
    client_id: str = "walle-cloud"


class _Models(Mapping[str, type[BaseModel]]):
    # any connector may stand beside ours: what a simulator needs is not our business
    def __init__(self) -> None:
        (point,) = entry_points(group="walle_stream.connectors", name=_CONNECTOR)
        self._owner: Any = point.load()

    def __getitem__(self, name: str) -> type[BaseModel]:
        model: type[BaseModel] = self._owner.model
        return model if name == _CONNECTOR else _Partial

    def of_tunnel(self, name: str) -> type[BaseModel]:
        model: type[BaseModel] = self._owner.tunnel_model
        return model if name == _CONNECTOR else _Partial

    def __iter__(self) -> Iterator[str]:
        return iter((_CONNECTOR,))

    def __len__(self) -> int:
        return 1


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
    loaded = load_pipeline(
        file, overrides, connector_models=_Models(), read_package=lambda path: _Package(path.stem)
    )
    features, events = _part(loaded.tunnel), _part(loaded.source)
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
    )


def _part(model: BaseModel | None) -> KafkaPart | None:
    if not isinstance(model, Connection):
        return None
    given = KafkaPart.model_fields.keys() & model.model_fields_set
    return KafkaPart.model_validate({name: getattr(model, name) for name in given})


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


@dataclass(frozen=True, slots=True)
class _Package:
    name: str


def tls_context(part: KafkaPart) -> ssl.SSLContext | None:
    """Return what TLS connections are made with, or None without TLS.

    Args:
        part: Of the YAML.

    Raises:
        TunnelError: A file cannot be read, or is not what it should be.
    """
    if part.tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=part.tls.ca)
        if part.tls.cert is not None:
            context.load_cert_chain(part.tls.cert, part.tls.key)
    except (OSError, ssl.SSLError) as error:
        raise TunnelError(
            f"the TLS files of {', '.join(part.brokers)} cannot be used ({error}): check ca, cert "
            "and key under tls"
        ) from error
    return context
