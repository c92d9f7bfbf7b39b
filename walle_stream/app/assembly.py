"""Assembly of the parts of a run from a definition.

Loading reads and checks everything that can be wrong before anything is opened: the YAML, the
connectors' keys, the scripts and packages. Opening registers each part's close on the caller's
stack, in an order that loses no data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, override

from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.device_host import DeviceHost
from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.supervisor import RestartPolicy
from walle_stream.app.options import RunOptions
from walle_stream.app.partitions import HostPlace, PartitionOpener, open_snapshots
from walle_stream.app.programs.evaluating import LazyEvaluator
from walle_stream.app.programs.installed import InstalledPrograms
from walle_stream.app.programs.isolation import check_machine, ready_tasks
from walle_stream.app.programs.likely_mistakes import FirstRows, LikelyMistakes
from walle_stream.app.programs.models import load_models, onnx_models
from walle_stream.app.programs.programs import ReadyTask, unpack_task
from walle_stream.app.programs.services import check_calls, load_services
from walle_stream.cloud.answering import AnsweringThread
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.cloud.host_tables import HostTables, Replies
from walle_stream.cloud.inbox import Inbox
from walle_stream.cloud.sink_pump import SinkPump, serving_sinks
from walle_stream.errors import SourceError
from walle_stream.ports import (
    DeadLetterSink,
    DeviceTunnel,
    Downlink,
    ModelRunner,
    Placement,
    ProofOf,
    ReportSink,
    SourceReader,
)
from walle_stream.reading.assigned import AssignedSource, Assignment
from walle_stream.spec.connectors import ConnectorModels, load_connector, placing_of
from walle_stream.spec.files import check_files
from walle_stream.spec.loader import LoadedPipeline, load_pipeline
from walle_stream.store.copies import Uploads
from walle_stream.store.datadir import DataDir
from walle_stream.store.rocks import set_block_cache_bytes
from walle_stream.store.warming import WarmCopies
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import fields_of
from walle_stream.tunnel.outbox import LimitedTunnel, OutboxPolicy
from walle_stream.tunnel.receiver import MergeCounts
from walle_stream.types import placing_mark
from walle_stream.vm.containment import check_bodies
from walle_stream.vm.memory import machine_bytes
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.services import HostServices

if TYPE_CHECKING:
    from walle_stream.actors.engine.worker import ModelBlueprint

MAILBOX_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the batches that wait for one device host."""

LOCK_TIMEOUT_S: Final = 5.0
"""Time that a start waits for the lock of a process that is ending."""


class Assembly:
    """The parts of one run: load, open, then request parts. Use once."""

    def __init__(self, loaded: LoadedPipeline[ReadyTask], tasks: Sequence[ReadyTask]) -> None:
        """Keep the checked definition; callers use ``load``."""
        self.name = loaded.pipeline.metadata.name
        self.masked_values = loaded.masked_values
        self._loaded = loaded
        self._spec = loaded.pipeline.spec
        self.tasks = tasks
        self.report_sink: ReportSink | None = None
        """Receiver of device reports, where the cloud side runs here. Set it before opening."""
        self.proof_of: ProofOf | None = None
        """Source of the receipts that go with device reports. Set it before opening."""
        self.warm_vms = self._spec.runtime.warm_vms
        """Number of VMs made in advance. Set it before a run that will install versions."""
        self.engine = self._spec.engine
        """Engine actors that run the ONNX models; None where hosts run them."""
        threads = None if self.engine is None else self.engine.threads
        self._models = load_models(self._spec.models, threads)
        self.blueprints: Mapping[str, ModelBlueprint] = {}
        """Blueprints of models for engine actors, until the run takes them."""
        connector = load_connector(self._spec.source.connector)
        self._source = connector.open(loaded.source)
        self._connector = load_connector(self._spec.tunnel.connector)
        self._placing = placing_of(connector, self._connector)
        self.has_cloud = hasattr(self._connector, "open_tables")
        """Whether the cloud side is stored with the partitions, not in another program."""
        services = self._spec.services if self.has_cloud else {}
        self._services = load_services(services, self._models)
        self.is_placed = getattr(self._source, "is_placed", False)
        """Whether the source's own group assigns partitions to hosts."""
        self.snapshots = self._spec.state.snapshots
        """Place of the snapshots with which state moves to other machines."""
        self.runtime = self._spec.runtime.kind
        self.runtime_spec = self._spec.runtime
        self.installed: InstalledPrograms
        """Programs installed during the run; set by opening."""
        self._tunnel: DeviceTunnel | None = None
        self._tables: HostTables | None = None
        self._inbox: Inbox | None = None
        self._answering: AnsweringThread | None = None
        self._sinks: Sequence[SinkPump] = ()
        self._end_sinks = ExitStack()
        self._device_end: dict[str, int] = {}
        self.host_count: int = self._spec.runtime.hosts
        self.partition_count: int = self._spec.runtime.partitions
        self.partitions: Sequence[int] = range(self.partition_count)
        """The partitions of this run, unless its source places them."""
        self.mailbox_bytes = MAILBOX_MAX_BYTES
        self.batch_events: int = self._spec.runtime.batch_events
        self.latency_target_ms: int = self._spec.runtime.latency_target_ms
        self.memory_bytes = self._spec.runtime.memory_bytes or machine_bytes() // 4 * 3
        """Resident memory of the process above which runs are stopped."""

    @classmethod
    def load(cls, file: Path, overrides: Sequence[str] = ()) -> Self:
        """Load and check a definition without opening anything.

        Raises:
            SpecFileError: The definition is wrong.
            ScriptError: A script is wrong.
            EngineError: An ONNX file is no model that scripts can run, or this machine lacks a
                requirement of its backend.
        """
        loaded = load_pipeline(
            file,
            overrides,
            connector_models=ConnectorModels(),
            look_for_scripts=True,
            read_package=unpack_task,
        )
        # report problems before anything is opened
        assembly = cls(loaded, ready_tasks(loaded))
        check_calls(assembly.tasks, assembly._spec.services, loaded.places)
        models = onnx_models(assembly._models)
        if assembly.runtime == "local":
            for model in models.values():
                model.read()
        elif assembly.engine is None:
            for model in models.values():
                model.check()  # other processes host the partitions and read it themselves
        else:
            assembly.blueprints = {name: model.blueprint() for name, model in models.items()}
        return assembly

    @override
    def __reduce__(self) -> Any:
        """Pickle the checked definition, so that another process reads no file again."""
        return Assembly, (self._loaded, self.tasks)

    def run_models_with(self, runners: Mapping[str, ModelRunner]) -> None:
        """Replace ONNX models by these runners; call before opening."""
        from walle_stream.engine.batching import RowsTogether  # noqa: PLC0415 - imports numpy

        for name, runner in runners.items():
            is_batched = hasattr(self._models[name], "run_many")
            self._models[name] = RowsTogether(runner) if is_batched else runner

    def open(self, stack: ExitStack, options: RunOptions) -> None:
        """Open the data directory, the tunnel and the VMs; blocks.

        Raises:
            WalleError: A part cannot be opened. The parts opened so far are closed.
        """
        check_machine(self.tasks, self._loaded.places)
        # a killed Ray driver may have left processes that are still ending
        directory = self.open_directory(stack, options.data_dir)
        if not self.is_placed:
            directory.wait_for_parts()
        self._open_parts(stack, options, HostPlace(0, 1))

    def spread(self) -> Assignment | None:
        """Place partitions on hosts by an assignment; return None if the source's group does so.

        Call before opening.

        Raises:
            SourceError: Every host would read the whole source.
        """
        if self.is_placed:
            return None
        if not self._source.reads_apart:
            raise SourceError(
                f"pipeline {self.name!r} has a single-file source, which every host of a cluster "
                "would read whole: cut it with `walle partition FILE`, and set spec.source.path to "
                "the folder"
            )
        assignment = Assignment()
        count = self.partition_count
        self._source = AssignedSource(self._source, count, self._placing, assignment)
        self.is_placed = True
        return assignment

    def open_host(self, stack: ExitStack, options: RunOptions, place: HostPlace) -> None:
        """Open the parts of one host of several processes; another process owns the directory."""
        check_machine(self.tasks, self._loaded.places)
        self._data_dir = stack.enter_context(DataDir.open_read_only(options.data_dir))
        self._open_parts(stack, options, place)

    def open_directory(self, stack: ExitStack, path: Path) -> DataDir:
        """Open or create the data directory; blocks while its previous owner is ending.

        Raises:
            SourceError: The source has another number of partitions.
            WalleError: The directory cannot be opened, or belongs to another pipeline or source.
        """
        count = getattr(self._source, "partition_count", self.partition_count)
        if count != self.partition_count:
            raise SourceError(
                f"the source has {count} partitions, pipeline {self.name!r} has "
                f"{self.partition_count}: set spec.runtime.partitions={count}. An existing data "
                "directory keeps its number of partitions: give a new --data-dir"
            )
        self._source.check_placing(self.partition_count, self._placing)
        self._data_dir = stack.enter_context(
            DataDir.open(
                path,
                partition_count=self.partition_count,
                pipeline=self.name,
                source=self._source.fingerprint,
                has_cloud=self.has_cloud,
                placing=placing_mark(self._placing),
                is_shared=self.is_placed,
                lock_timeout_s=LOCK_TIMEOUT_S,
            )
        )
        self._data_dir.check_parts(has_copies=self._spec.state.snapshots is not None)
        self._source.check_fingerprint(self._data_dir.meta.source)
        return self._data_dir

    def _open_tunnel(self, stack: ExitStack) -> DeviceTunnel:
        if self.has_cloud:
            return self._open_tables(stack)
        spec = self._spec.tunnel
        policy = OutboxPolicy(spec.outbox.max_bytes, spec.on_full == "dropOldest", spec.max_age_ms)
        end: DeviceTunnel = self._connector.open_device(
            self._loaded.tunnel, policy.max_bytes, **self._device_end
        )
        tunnel = LimitedTunnel(end, policy) if policy.drops else end
        stack.callback(tunnel.close)
        return tunnel

    def _downlink_of(self, tunnel: DeviceTunnel) -> Downlink:
        return tunnel.downlink

    def _open_tables(self, stack: ExitStack) -> HostTables:
        sinks = tuple(self._loaded.sinks)
        tables: HostTables = self._connector.open_tables(sinks, self.report_sink)
        self._tables = tables
        own = self._data_dir.inbox_path, tables, self.partition_of, self.partition_count
        inbox = self._inbox = Inbox(*own)
        self._answering = AnsweringThread(tables.tables, Replies(tables), self._services, inbox)
        tables.on_call = self._answering.wake
        stack.callback(self._answering.close)
        stack.enter_context(self._end_sinks)
        self._sinks = self._end_sinks.enter_context(serving_sinks(self._loaded, tables.tables))
        return tables

    def end_sinks(self) -> None:
        """Let sinks take merged features, after the last merge and before partitions are closed.

        Blocks for some seconds if a sink is unreachable.
        """
        self._end_sinks.close()

    def take_messages(self) -> None:
        """Deliver waiting messages to the open partitions; blocks.

        Raises:
            WalleError: A message cannot be read or written.
        """
        if self._inbox is not None:
            self._inbox.step(is_due=True)

    def check_cloud(self) -> None:
        """Raise the error that ended the cloud side, if it runs here.

        Raises:
            WalleError: Calls are no longer answered.
        """
        if self._answering is not None:
            self._answering.check()

    def relax_tunnel(self) -> None:
        """Let no host wait for room in the tunnel, because the run ends. Any thread."""
        if self._tunnel is not None:
            self._tunnel.relax()

    @property
    def task_names(self) -> list[str]:
        """Names of the definition's tasks, in its order."""
        return [task.name for task in self.tasks]

    @property
    def is_whole(self) -> bool:
        """Whether this process has all partitions, and so all events of the source."""
        return not self.is_placed and len(self.partitions) == self.partition_count

    @property
    def status_path(self) -> Path:
        """Path of the status file in the opened data directory."""
        return self._data_dir.status_path

    @property
    def incarnation(self) -> str:
        """Incarnation of the opened data directory."""
        return self._data_dir.meta.incarnation

    def _open_parts(self, stack: ExitStack, options: RunOptions, place: HostPlace) -> None:
        count = self.partition_count
        self._start = count + place.index
        numbers = () if self.is_placed else place.numbers(count)
        self._in_hand = self._data_dir.open_in_hand(place.hosts, numbers)
        set_block_cache_bytes(self._spec.state.cache_size_bytes // place.hosts)
        for model in onnx_models(self._models).values():
            stack.callback(model.close)
            model.read()
        with self._in_hand.in_line(self._start):
            self.pool = self._make_pool(options)
        stack.callback(self.pool.close)
        self.installed = InstalledPrograms(
            self._data_dir.packages_path,
            self.pool,
            self._data_dir.quarantined,
            is_shared=self.is_placed,
            floor=self._spec.runtime.minimum_isolation,
        )
        uploads = stack.enter_context(Uploads())
        sink = self._open_sink(stack)
        self._plan = self._make_plan(sink, is_measured=options.is_measured)
        state, objects = self._spec.state, open_snapshots(self._spec.state)
        self._tunnel = self._open_tunnel(stack)
        own = self._data_dir, self._in_hand, state, self._plan, self.pool
        ends = self._tunnel, self._downlink_of(self._tunnel), self._tables
        self._opener = PartitionOpener(*own, *ends, uploads, objects)

    def _open_sink(self, stack: ExitStack) -> DeadLetterSink | None:
        spec = self._spec.dead_letters
        if spec is None:
            return None
        sink: DeadLetterSink = load_connector(spec.connector).open_letters(
            self._loaded.dead_letters
        )
        stack.callback(sink.close)
        return sink

    def _make_pool(self, options: RunOptions) -> VmPool:
        spec, in_hand, start = self._spec, self._in_hand, self._start
        services = HostServices(LazyEvaluator(self._models))
        if in_hand.is_doubtful(start):
            # a script's module body can end the process as a run can, before the culprit is known
            check_bodies([task.program for task in self.tasks], self.memory_bytes, services)
            in_hand.settle(start)
        in_hand.mark(start)
        try:
            return VmPool(
                {task.name: task.program for task in self.tasks},
                PoolLimits(
                    vms=spec.runtime.vms or min(options.hosts, self.partition_count),
                    device_vms=spec.runtime.device_vms,
                    warm_vms=self.warm_vms,
                    idle_s=(spec.runtime.vm_idle_ms or 0) / 1000.0,
                    max_runs=spec.runtime.vm_runs or 0,
                    memory_bytes=self.memory_bytes,
                ),
                self._on_stuck(options.on_stuck),
                self._data_dir.quarantined(),
                services,
                self._data_dir.add_quarantined,
            )
        finally:
            in_hand.put_down(start)

    def _on_stuck(self, end_process: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def on_stuck(task: str, device_id: str) -> None:
            self._data_dir.add_quarantined(task, device_id)
            self._in_hand.put_down_all()
            end_process(task, device_id)

        return on_stuck

    def partition_of(self, device_id: str) -> int:
        """Return the partition of a device."""
        return self._placing(device_id, self.partition_count)

    @property
    def cloud_counts(self) -> Mapping[int, MergeCounts]:
        """Merge counts of each partition that is or was open here. Any thread."""
        return {} if self._tables is None else dict(self._tables.counts)

    @property
    def sink_lags(self) -> dict[str, int]:
        """Number of features that each sink has yet to take, where the cloud side runs here."""
        return {pump.name: pump.lag for pump in self._sinks}

    @property
    def service_counts(self) -> ServiceCounts:
        """Outcomes of the calls that the cloud side answered here."""
        return {} if self._answering is None else self._answering.counts

    def mark_open(self) -> None:
        """Record that every partition was opened; a missing one is an error from now on."""
        if len(self.partitions) == self.partition_count:
            self._data_dir.mark_complete()

    def open_source(
        self,
        offsets: Mapping[int, bytes],
        limit: int | None,
        numbers: Sequence[int] | None = None,
    ) -> SourceReader:
        """Open the source at these offsets, for some partitions or (None) for all."""
        given = offsets, self.partition_count, self.batch_events, limit, self._placing, numbers
        return self._watched(self._source.open(*given))

    def join_source(self, placement: Placement, limit: int | None) -> SourceReader:
        """Join the group of a source that places partitions; see ``PlacingSource.join``."""
        return self._watched(self._source.join(placement, self.batch_events, limit))

    def _watched(self, reader: SourceReader) -> SourceReader:
        if self._plan.is_measured:
            reader.keeps_raw = True
        # several hosts may read the same rows: only one warns
        is_first = self.is_placed or self._start == self.partition_count
        return FirstRows(reader, self.mistakes()) if is_first else reader

    def check_services(self) -> None:
        """Import services, read files, and contact the place of snapshots; blocks.

        Raises:
            WalleError: A service, file or place is unavailable; see ``load_services``,
                ``open_snapshots``.
        """
        load_services(self._spec.services, self._models)
        check_files(self._loaded)
        if (objects := open_snapshots(self._spec.state)) is not None:
            objects.listed(self.name)

    def mistakes(self) -> LikelyMistakes:
        """Return the detector of likely mistakes in the definition and its events."""
        return LikelyMistakes(self.tasks, self._source, self._loaded.places)

    def warm_copies(self) -> WarmCopies | None:
        """Return the keeper of copies of other hosts' partitions; None without snapshots."""
        spec = self._spec.state.snapshots
        return None if spec is None else WarmCopies(self._opener.snapshots_of, spec.every_ms)

    def make_host(self, index: int, numbers: Iterable[int], sizer: BatchSizer) -> DeviceHost:
        """Return a host's actor, not started, with these partitions or those its source places."""
        open_one, is_placed = self._opener.open, self.is_placed
        return DeviceHost(
            f"host-{index}",
            lambda: [] if is_placed else [open_one(number) for number in numbers],
            RestartPolicy(),
            sizer,
            open_one if is_placed else None,
            incarnation=self.incarnation,
            may_begin_anew=self.snapshots is not None,
        )

    def _make_plan(self, sink: DeadLetterSink | None, *, is_measured: bool) -> PartitionPlan:
        spec = self._spec
        tasks = {task.name: task.installed() for task in self.tasks}
        return PartitionPlan(
            tasks=tasks,
            policy=SequencePolicy(
                page_timeout_ms=spec.sequence.page_timeout_ms,
                out_of_order_ms=spec.sequence.out_of_order_ms,
                page_max_events=spec.sequence.page_max_events,
                fields=fields_of(tasks),
            ),
            in_hand=self._in_hand,
            batch_events=self.batch_events,
            compression=spec.tunnel.compression,
            active_devices=spec.runtime.active_devices,
            incarnation=self._data_dir.meta.incarnation,
            journal_events=spec.state.journal_events,
            is_measured=is_measured,
            sink=sink,
            pipeline=self.name,
            programs=self.installed,
            report_ms=0 if spec.reports is None else spec.reports.every,
            proof_of=self.proof_of,
            reported_as={}
            if spec.reports is None
            else {
                task.name: (f"{spec.reports.scenario}/{task.name}", task.version)
                for task in self.tasks
            },
        )
