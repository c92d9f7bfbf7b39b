"""The kinds of definitions: Task and Pipeline, as pydantic models.

YAML keys are camelCase, and attributes are snake_case with their unit. Unknown
keys are errors everywhere. Nothing is converted silently: ``true`` is not a
number, ``5`` is not text. Place in the data flow: ``loader`` fills the models, ``app``
reads them.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel

from walle_stream.spec.engine import EngineSpec, Share
from walle_stream.spec.isolation import IsolationSpec, Policy
from walle_stream.spec.paths import PathField, PlaceField
from walle_stream.spec.references import ModelReference, ServiceReference, one_of
from walle_stream.spec.reports import ReportsSpec
from walle_stream.spec.scalars import DurationMs, DurationMsOrNever, SizeBytes
from walle_stream.spec.store import StoreSpec
from walle_stream.spec.strict import Strict
from walle_stream.types import HOSTS_MAX

API_VERSION: Final = "walle/v1"
_MIB: Final = 1024 * 1024

NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
"""Lower-case letters, digits and dashes, as in DNS."""

TriggerId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
"""An event id or a page id."""

RESOURCE_NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"
"""Pattern of ``ResourceName``: a relative path without a part that begins with a dot."""

ResourceName = Annotated[str, StringConstraints(pattern=RESOURCE_NAME_PATTERN, max_length=200)]
"""Name of a task's file inside its package."""


class Metadata(Strict):
    """Name and labels of a definition."""

    name: Name = Field(description="Lower-case letters, digits and dashes.")
    description: str = Field(default="", description="Text for people.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels for people and programs."
    )


class Trigger(Strict):
    """A condition that wakes a task."""

    sequence: tuple[TriggerId, ...] = Field(
        min_length=1,
        max_length=64,
        description="Event or page ids that follow each other directly.",
    )


class TaskLimits(Strict):
    """Bounds of one run of a task."""

    output_bytes: SizeBytes = Field(
        default=_MIB, ge=1, le=64 * _MIB, description="Most bytes that a run may emit."
    )
    emits: StrictInt = Field(
        default=10_000, ge=1, le=1_000_000, description="Most features that a run may emit."
    )
    log_lines: StrictInt = Field(
        default=100,
        ge=0,
        le=100_000,
        description="Most log lines of a run; further lines are only counted.",
    )

    wall_time_ms: DurationMs = Field(
        default=5_000, alias="wallTime", ge=10, le=3_600_000, description="Longest time of a run."
    )
    strikes: StrictInt = Field(
        default=3,
        ge=1,
        le=1_000,
        description="Stopped runs after which a device's task is quarantined.",
    )
    steps: StrictInt = Field(
        default=0,
        ge=0,
        le=10**12,
        description="Most loop turns and calls of a run; 0 sets no limit.",
    )
    state_bytes: SizeBytes = Field(
        default=_MIB, ge=1, le=64 * _MIB, description="Most bytes of one device's state."
    )


class RetrySpec(Strict):
    """Retries of a run that fails."""

    attempts: StrictInt = Field(
        default=1, ge=1, le=10, description="Runs in all, the first included; 1 tries once."
    )
    backoff_ms: DurationMs = Field(
        default=100,
        alias="backoff",
        le=2_000,
        description="Pause before the second run; it doubles before each further run.",
    )


class OnErrorSpec(Strict):
    """Treatment of a run that fails."""

    retry: RetrySpec = Field(default_factory=RetrySpec, description="Retries of a failed run.")
    dead_letter: StrictBool = Field(
        default=True, description="Whether a run that failed for good leaves a dead letter."
    )


class TaskSpec(Strict):
    """Contents of a task."""

    version: Annotated[str, StringConstraints(min_length=1, max_length=100)] = Field(
        default="1", description="Version of the script; every feature carries it."
    )
    state_version: StrictInt = Field(
        default=1, ge=1, le=2**31, description="Version of the layout of its state."
    )
    script: PathField = Field(description="Python with def run(ctx, page).")
    triggers: tuple[Trigger, ...] = Field(min_length=1, description="Each wakes the task.")
    pages: tuple[TriggerId, ...] | None = Field(
        default=None,
        min_length=1,
        description="Pages whose events wake the task; all pages when left out.",
    )
    fields: tuple[Annotated[str, StringConstraints(min_length=1)], ...] | None = Field(
        default=None, description="Fields of contents that the script reads; all when left out."
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="Configuration of the script, as ctx.config."
    )
    """JSON values only."""
    resources: dict[ResourceName, PathField] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Files that travel with the script, by the name that the script uses.",
    )
    limits: TaskLimits = Field(default_factory=TaskLimits, description="Bounds of one run.")
    isolation: IsolationSpec = Field(
        default_factory=IsolationSpec, description="Isolation of its runs from others."
    )
    on_error: OnErrorSpec = Field(
        default_factory=OnErrorSpec, description="Treatment of a run that fails."
    )


class Task(Strict):
    """A task: a script and its triggers."""

    api_version: Literal["walle/v1"]
    kind: Literal["Task"]
    metadata: Metadata
    spec: TaskSpec


class SourceSpec(BaseModel):
    """The source of events; the connector validates its own keys."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    connector: str = Field(description="Name of an installed connector, or package.module:NAME.")


class SequenceSpec(Strict):
    """Rules by which events become page sequences."""

    page_timeout_ms: DurationMsOrNever = Field(
        default=1_800_000,
        alias="pageTimeout",
        ge=1,
        description="A page without events for this time is closed; never closes none.",
    )
    out_of_order_ms: DurationMs = Field(
        default=0,
        alias="outOfOrder",
        description="Longest delay of a device's event out of order: each event is held until "
        "an event later by this time arrives. 0 holds none.",
    )
    page_max_events: StrictInt = Field(
        default=10_000, ge=2, le=1_000_000, description="A page with more events is closed."
    )


class TaskReference(Strict):
    """A task of the pipeline: by name in the same file, another file, or a package."""

    model_config = ConfigDict(json_schema_extra=one_of("task", "file", "package"))
    task: Name | None = Field(default=None, description="Name of a Task in the same file.")
    file: PathField | None = Field(default=None, description="A file that holds one Task.")
    package: PathField | None = Field(
        default=None, description="A package made by walle task build."
    )


FunctionName = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
"""Name by which scripts call a service or a model."""


class OutboxSpec(Strict):
    """Bounds of the features that wait to be sent."""

    max_bytes: SizeBytes = Field(
        default=64 * _MIB,
        ge=1,
        description="Most bytes that wait; with more, onFull decides.",
    )


class TunnelSpec(BaseModel):
    """The way to the cloud; the connector validates its own keys."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        defer_build=True,
    )
    connector: str = Field(default="embedded", description="Name of an installed connector.")
    compression: Literal["zstd", "zlib", "none"] = Field(
        default="zstd", description="Compression of frames."
    )
    outbox: OutboxSpec = Field(
        default_factory=OutboxSpec, description="Bounds of the features that wait to be sent."
    )
    on_full: Literal["wait", "dropOldest"] = Field(
        default="wait",
        description="With outbox.maxBytes waiting: pause the source, or drop the oldest features.",
    )
    max_age_ms: DurationMs | None = Field(
        default=None,
        alias="maxAge",
        ge=1_000,
        description="Waiting features older than this, by event time, are dropped.",
    )

    @model_validator(mode="after")
    def _drops_where_it_may_wait(self) -> Self:
        if self.connector == "embedded" and (self.on_full != "wait" or self.max_age_ms is not None):
            raise ValueError(
                "onFull: dropOldest and maxAge are for a tunnel that can be down: the embedded "
                "tunnel is on this disk; leave them out, or set connector: kafka"
            )
        return self


class DeadLettersSpec(BaseModel):
    """Sink of dead letters besides the data directory; the connector validates its own keys."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    connector: str = Field(description="Name of an installed connector that takes dead letters.")


class SinkSpec(BaseModel):
    """Sink of merged features; the connector validates its own keys."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    connector: str = Field(description="Name of an installed connector that takes features.")


class RuntimeSpec(Strict):
    """Processes, batches and memory of a running pipeline."""

    kind: Literal["local", "ray", "cluster"] = Field(
        default="local",
        description="local: one process; ray: a process per host, in Ray actors of this node; "
        "cluster: the same on all nodes.",
    )
    standbys: StrictInt = Field(
        default=0,
        ge=0,
        le=2,
        description="Nodes of a cluster that keep a warm copy of a partition besides its own node.",
    )
    partitions: StrictInt = Field(
        default=16, ge=1, le=1024, description="Fixed when the data directory is made."
    )
    hosts: StrictInt = Field(
        default=1, ge=1, le=HOSTS_MAX, description="Processes that own the partitions."
    )
    host_cpus: Share = Field(
        default=1.0,
        alias="hostCpus",
        description="Cores that Ray reserves for a host of a cluster; 0.5 is half a core.",
    )
    batch_events: StrictInt = Field(
        default=2_000, ge=1, le=100_000, description="Most events per batch."
    )
    latency_target_ms: DurationMs = Field(
        default=500,
        alias="latencyTarget",
        ge=1,
        description="Longest time from a batch to its commit; batches are sized for it.",
    )
    vms: StrictInt | None = Field(
        default=None, ge=1, le=64, description="VMs per task; the number of hosts when left out."
    )
    device_vms: StrictInt = Field(
        default=64, ge=1, le=10_000, description="VMs per task with isolation: device."
    )
    warm_vms: StrictInt = Field(
        default=0, ge=0, le=64, description="Spare VMs for the next task or replacement."
    )
    vm_idle_ms: DurationMsOrNever = Field(
        default=None,
        alias="vmIdle",
        ge=100,
        description="A VM without runs for this time is destroyed, except a task's last VM.",
    )
    vm_runs: StrictInt | None = Field(
        default=None, ge=1, description="A VM is replaced after this number of runs."
    )
    memory_bytes: SizeBytes | None = Field(
        default=None,
        alias="memory",
        ge=64 * _MIB,
        description="Memory above which runs are stopped; 3/4 of the machine's when left out.",
    )
    minimum_isolation: Policy = Field(
        default="shared", description="Weakest isolation that a package may have."
    )
    active_devices: StrictInt = Field(
        default=10_000, ge=0, le=10_000_000, description="Devices kept in memory per partition."
    )


class SnapshotsSpec(Strict):
    """Copies of the partitions' state for other machines."""

    url: PlaceField | None = Field(
        default=None,
        description="A folder that every machine reaches, or file://, s3://, gs://, az://.",
    )
    path: PathField | None = Field(default=None, description="A folder, in place of url.")
    every_ms: DurationMs = Field(
        default=60_000, alias="every", ge=100, description="Time between two snapshots."
    )
    keep: StrictInt = Field(default=2, ge=2, le=1_000, description="Snapshots that are kept.")
    options: dict[Literal["endpoint", "region"], str] = Field(
        default_factory=dict,
        description="Access to an object store; credentials come from the environment.",
    )

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if (self.url is None) == (self.path is None):
            raise ValueError("give url or path")
        return self

    @property
    def place(self) -> str:
        """Place of the snapshots: a folder, or a URL."""
        return self.url or str(self.path)


class StateSpec(StoreSpec):
    """Storage of state, and its snapshots."""

    snapshots: SnapshotsSpec | None = Field(
        default=None, description="Copies of the state for a partition's next owner."
    )


class PipelineSpec(Strict):
    """Contents of a pipeline."""

    source: SourceSpec = Field(description="Source of events.")
    sequence: SequenceSpec = Field(
        default_factory=SequenceSpec, description="Rules by which events become page sequences."
    )
    tasks: tuple[TaskReference, ...] = Field(min_length=1, description="Tasks that run.")
    tunnel: TunnelSpec = Field(default_factory=TunnelSpec, description="The way to the cloud.")
    dead_letters: DeadLettersSpec | None = Field(
        default=None, description="Sink of dead letters besides the data directory."
    )
    sinks: dict[Name, SinkSpec] = Field(
        default_factory=dict, description="Sinks of merged features besides the table, by name."
    )
    services: dict[FunctionName, ServiceReference] = Field(
        default_factory=dict,
        description="Services of the cloud for ctx.call_cloud, by name.",
    )
    models: dict[FunctionName, ModelReference] = Field(
        default_factory=dict,
        description="Models of the host for ctx.run_model, by name: an ONNX file or a function of "
        "numpy arrays.",
    )
    engine: EngineSpec | None = Field(
        default=None,
        description="Actors that run the ONNX models for all hosts, with `runtime.kind: ray`; the "
        "hosts run them when left out.",
    )
    reports: ReportsSpec | None = Field(
        default=None, description="Reports to the cloud about the results of tasks."
    )
    runtime: RuntimeSpec = Field(
        default_factory=RuntimeSpec, description="Processes, batches and memory."
    )
    state: StateSpec = Field(default_factory=StateSpec, description="Storage of state.")

    @model_validator(mode="after")
    def _has_work_for_its_engine(self) -> Self:
        if self.engine is not None:
            self.engine.check_backends(
                {model.backend for model in self.models.values() if model.onnx}
            )
        return self


class Pipeline(Strict):
    """A pipeline: source, tasks, tunnel, runtime."""

    api_version: Literal["walle/v1"]
    kind: Literal["Pipeline"]
    metadata: Metadata
    spec: PipelineSpec
