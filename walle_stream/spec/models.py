"""The kinds of definitions: Task and Pipeline, as pydantic models.

YAML keys are camelCase, attributes snake_case with their unit. Unknown keys are
errors everywhere.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from walle_stream.spec.scalars import DurationMs, DurationMsOrNever, SizeBytes

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
"""Lower-case letters, digits and dashes, as in DNS."""

TriggerId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""An event id or a page id."""


class Strict(BaseModel):
    """Base of all parts of a definition."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True
    )


class PathMarker:
    """Marks a field as a path: relative to its file, or to the shell for ``--set``."""


PathField = Annotated[Path, PathMarker()]
"""A path in YAML."""


class Metadata(Strict):
    """Who a definition is."""

    name: Name
    description: str = ""
    labels: dict[str, str] = {}


class Trigger(Strict):
    """A condition that wakes a task."""

    sequence: tuple[TriggerId, ...] = Field(min_length=1, max_length=64)
    """Event or page ids that follow each other directly."""


class TaskSpec(Strict):
    """What a task is."""

    version: str = "1"
    state_version: int = Field(default=1, ge=1)
    script: PathField
    triggers: tuple[Trigger, ...] = Field(min_length=1)
    fields: tuple[str, ...] | None = None
    """Contents of events that the script reads; all when left out."""
    config: dict[str, Any] = {}


class Task(Strict):
    """A task: a script and what wakes it."""

    api_version: Literal["walle/v1"]
    kind: Literal["Task"]
    metadata: Metadata
    spec: TaskSpec


class SourceSpec(BaseModel):
    """Where events come from; the connector validates its own keys."""

    model_config = ConfigDict(extra="allow", frozen=True)
    connector: str


class SequenceSpec(Strict):
    """How event sequences are built."""

    page_timeout_ms: DurationMsOrNever = Field(default=1_800_000, alias="pageTimeout")
    out_of_order_ms: DurationMs = Field(default=0, alias="outOfOrder")
    page_max_events: int = Field(default=10_000, ge=2, le=1_000_000)


class TaskReference(Strict):
    """A task of the pipeline: by name in the same file, or another file."""

    task: Name | None = None
    file: PathField | None = None


class OutboxSpec(Strict):
    """Bounds of what waits to be sent."""

    max_bytes: SizeBytes = Field(default=64 * 1024 * 1024, ge=1)
    on_full: Literal["block"] = "block"


class TunnelSpec(BaseModel):
    """The way to the cloud; the connector validates its own keys."""

    model_config = ConfigDict(
        extra="allow", frozen=True, alias_generator=to_camel, validate_by_name=True
    )
    connector: str = "embedded"
    compression: Literal["zstd", "zlib", "none"] = "zstd"
    outbox: OutboxSpec = OutboxSpec()


class RuntimeSpec(Strict):
    """How a pipeline runs."""

    kind: Literal["local"] = "local"
    partitions: int = Field(default=16, ge=1, le=1024)
    hosts: int = Field(default=1, ge=1, le=256)
    batch_events: int = Field(default=2_000, ge=1, le=100_000)
    vms: int | None = Field(default=None, ge=1, le=64)
    """VMs per task; as many as hosts when left out."""
    active_devices: int = Field(default=10_000, ge=0)


class StateSpec(Strict):
    """How state is kept."""

    sync: bool = False
    """Wait for the disk at every commit: survives a power cut too."""


class PipelineSpec(Strict):
    """What a pipeline is."""

    source: SourceSpec
    sequence: SequenceSpec = SequenceSpec()
    tasks: tuple[TaskReference, ...] = Field(min_length=1)
    tunnel: TunnelSpec = TunnelSpec()
    runtime: RuntimeSpec = RuntimeSpec()
    state: StateSpec = StateSpec()


class Pipeline(Strict):
    """A pipeline: source, tasks, tunnel, runtime."""

    api_version: Literal["walle/v1"]
    kind: Literal["Pipeline"]
    metadata: Metadata
    spec: PipelineSpec
