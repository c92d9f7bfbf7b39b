"""A device host in a process of its own, which reads the source for its partitions.

Threads: Ray's, which answer the driver; one that reads the source; the device host's, which runs
the turns; those of the VMs and of the uplink. Every host reads its own partitions, so that no event
crosses a process. A single-file source is therefore read whole by every host. If the source's own
group places partitions, each host reads those assigned to it. Each host also sends to the tunnel
itself, so that no feature crosses a process either.
"""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from walle_stream.actors.actor import ActorRef
from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.device_host import (
    Close,
    GetOffsets,
    GetStatus,
    Pull,
    Settle,
    delivery_events,
)
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.actors.turns.turn import Delivery
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import FLUSH_TIMEOUT_S, REPLIES_TIMEOUT_S, calm_collector
from walle_stream.app.options import RunOptions
from walle_stream.app.partitions import HostPlace
from walle_stream.app.ray.engine import open_engine
from walle_stream.app.ray.logs import LogQueue, LogRecords
from walle_stream.app.ray.session import Versions, node_here, versions_here
from walle_stream.clock import process_cpu_s
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.errors import ActorDeadError, SourceChangedError, WalleError
from walle_stream.ports import SourceBatch, SourceReader, Unread
from walle_stream.reading.assigned import Assignment, Held
from walle_stream.store.datadir import DataDir
from walle_stream.store.locks import wait_for_locks
from walle_stream.tunnel.receiver import MergeCounts
from walle_stream.vm.counts import VmCounts, VmStatus
from walle_stream.vm.memory import limit_data

if TYPE_CHECKING:
    from walle_stream.store.warming import WarmCopies

type Phase = Literal["reading", "closing", "done", "worn out"]
"""``done``: everything is committed and closed.

``worn out``: the same, but a new process must read the rest.
"""


class Size(NamedTuple):
    """Number of hosts of a run over a cluster; a later ``Size`` compares as larger."""

    changes: int = 0
    hosts: int = 0


_log = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Interval at which a host checks for a stop request while it reads."""


class HostState(msgspec.Struct, kw_only=True):
    """State of a host, for which the driver asks about five times a second."""

    phase: Phase = "reading"
    failure: BaseException | None = None
    progress: float = 0.0
    """Share of the source read so far; below 0 when unknown."""
    unread: Unread = Unread()
    is_ended: bool = False
    """Whether one of its partitions received the source's natural end."""
    missing_replies: int = 0
    read_events: int = 0
    """Events read by this process, if the source places partitions; else 0."""
    mailbox_bytes: int = 0
    in_hand_events: int = 0
    held: Held = Held()
    """Partitions placed by the supervisor of a cluster run."""
    warm: frozenset[int] = frozenset()
    """Partitions of which this host has a warm copy."""
    size: Size = Size()
    """Number of hosts, kept for the next supervisor."""
    node: str = ""
    """Ray's id of the host's node, in a cluster run."""
    address: str = ""
    """Address of that node."""
    statuses: list[PartitionStatus] = []
    vm_counts: VmCounts = msgspec.field(default_factory=VmCounts)
    vms: list[VmStatus] = []
    cloud: Mapping[int, MergeCounts] = {}
    """Merge counts of each partition whose cloud side is stored with it."""
    sink_lags: Mapping[str, int] = {}
    service_counts: ServiceCounts = {}
    cpu_s: float = 0.0
    logs: LogRecords = []


class HostProcess:
    """Class of the Ray actor. Its calls run in several threads, and may block."""

    def __init__(
        self, assembly: Assembly, options: RunOptions, index: int, cwd: str, log_level: int
    ) -> None:
        """Keep the parameters without opening anything.

        Paths are relative to ``cwd``, the driver's; those of a spread run are absolute.
        """
        if not options.is_spread:
            os.chdir(cwd)
        self._logs = LogQueue(log_level)
        self._assembly = assembly
        self._options = options
        self._index = index
        self._stack = ExitStack()
        self._sizer = BatchSizer(
            assembly.latency_target_ms,
            assembly.batch_events,
            partitions=assembly.partition_count // options.hosts,
        )
        self._stop = Flag()
        self._host: ActorRef | None = None
        self._reader: SourceReader | None = None
        self._passed: dict[int, bytes] = {}
        self._assignment: Assignment | None = None
        self._warm: WarmCopies | None = None
        self._opened_with: tuple[dict[int, bytes], list[PartitionStatus]] | None = None
        self._is_begun = False
        self._state = HostState()

    # Calls of the driver

    def hello(self) -> tuple[int, Versions]:
        """Return the process id, and the versions that must equal the driver's."""
        return os.getpid(), versions_here()

    def open(self, engine: Any | None = None) -> tuple[dict[int, bytes], list[PartitionStatus]]:
        """Open the partitions; blocks while a previous owner is ending.

        ``engine`` has the engine actors' ``EngineHandles``. Returns the committed offset of every
        partition that has one, and the partitions' figures. A second call returns the same.
        """
        if self._opened_with is None:
            self._opened_with = self._open(engine)
        return self._opened_with

    def _open(self, engine: Any | None) -> tuple[dict[int, bytes], list[PartitionStatus]]:
        assembly, stack, options = self._assembly, self._stack, self._options
        stack.enter_context(calm_collector())
        limit_data(assembly.memory_bytes)
        if options.is_spread:
            self._assignment = assembly.spread()
            assembly.open_directory(stack, options.data_dir)
        # hosts that share a node's directory come and go, so each opens it as if alone
        index, hosts = (0, 1) if options.is_spread else (self._index, options.hosts)
        place = HostPlace(index, hosts)
        # partitions that the source places come with the reader
        numbers = () if assembly.is_placed else place.numbers(assembly.partition_count)
        self._numbers = numbers
        data_dir = DataDir.open_read_only(Path(options.data_dir))
        wait_for_locks([data_dir.partition_path(number) for number in numbers])
        if engine is not None:
            open_engine(stack, assembly, engine, self._index)
        assembly.open_host(stack, options, place)
        if self._assignment is not None:
            self._warm = assembly.warm_copies()
            if self._warm is not None:
                stack.callback(self._warm.close)
        self._devices = assembly.make_host(self._index, numbers, self._sizer)
        self._host = ActorRef(self._devices, assembly.mailbox_bytes)
        stack.callback(self._host.join, FLUSH_TIMEOUT_S)
        stack.callback(self._host.stop)
        offsets, statuses = self._ask(GetOffsets()), self._ask(GetStatus())
        assembly.take_messages()
        return offsets, statuses

    def begin(self, offsets: Mapping[int, bytes], own: Mapping[int, bytes]) -> None:
        """Read the source in a thread of its own, to its end or the limit; once.

        A limit counts from ``offsets``, those of all partitions at the start of the run. ``own``
        are the present offsets of this host's partitions.
        """
        if not self._is_begun:
            self._is_begun = True
            given = offsets, own
            Thread(target=self._work, args=given, name="walle-source", daemon=True).start()

    def place(self, generation: int, numbers: frozenset[int]) -> None:
        """Own these partitions from now on; see ``Assignment.place``."""
        if self._assignment is not None:
            self._assignment.place(generation, numbers)

    def keep_warm(self, numbers: Collection[int]) -> None:
        """Keep copies of these partitions of other hosts; see ``WarmCopies.keep``."""
        if self._warm is not None:
            self._warm.keep(numbers)

    def remember(self, size: Size) -> None:
        """Keep the wanted number of hosts, for which a restarted supervisor asks."""
        self._state.size = max(size, self._state.size)

    def finish(self) -> None:
        """Let the reader end with the source: no more placements follow."""
        if self._assignment is not None:
            self._assignment.finish()

    def stop(self) -> None:
        """Stop reading; finish the events already read, commit, flush and close."""
        self._stop.set()
        self._assembly.relax_tunnel()

    def state(self) -> HostState:
        """Return the state of the host at its last commits; never waits."""
        state, host = self._state, self._host
        if host is not None and state.phase == "reading":
            state.statuses = self._devices.peek()
            state.mailbox_bytes = host.mailbox_bytes
            read_events = Delivery.count_events(host.waiting)
            state.in_hand_events = self._devices.in_hand_events + read_events
            pool = self._assembly.pool
            state.vm_counts, state.vms = pool.counts, pool.machines
        if self._reader is not None:
            state.progress, state.unread = self._reader.progress, self._reader.unread
        if self._assignment is not None:
            state.held = self._assignment.held
            state.warm = frozenset() if self._warm is None else self._warm.warm
            state.node, state.address = node_here()
        assembly = self._assembly
        state.cloud, state.sink_lags = assembly.cloud_counts, assembly.sink_lags
        state.service_counts = assembly.service_counts
        return msgspec.structs.replace(state, cpu_s=process_cpu_s(), logs=self._logs.take())

    # The reading thread

    def _work(self, offsets: Mapping[int, bytes], own: Mapping[int, bytes]) -> None:
        state = self._state
        try:
            is_placed = self._assembly.is_placed
            is_worn = self._pull() if is_placed else self._read(offsets, own)
            state.phase = "closing"
            # after a stop or a limit the next run takes the replies
            is_limited = self._options.limit is not None and not state.is_ended
            if not (is_limited or is_worn or self._stop.is_set()):
                state.missing_replies = self._ask(Settle(REPLIES_TIMEOUT_S, self._stop.is_set))
            self._ask(Close(FLUSH_TIMEOUT_S, is_last=False))
            self._assembly.end_sinks()
            state.statuses = self._ask(Close(FLUSH_TIMEOUT_S))
            self._stack.close()
            state.phase = "worn out" if is_worn else "done"
        except BaseException as error:  # noqa: BLE001 - the driver handles it
            if not isinstance(error, WalleError):
                _log.exception("host %d failed", self._index)  # the driver logs a single line
            state.failure = error

    def _read(self, offsets: Mapping[int, bytes], own: Mapping[int, bytes]) -> bool:
        limit, is_worn = self._options.limit, False
        if self._stop.is_set():
            return False
        if limit is None:
            offsets = {**offsets, **own}
        else:
            # the limit counts from the run's beginning: read again from there, in batches of one
            # size, and skip the batches committed meanwhile
            self._passed = {n: at for n, at in own.items() if at != offsets.get(n)}
        with closing(self._assembly.open_source(offsets, limit, self._numbers)) as reader:
            self._reader = reader
            while not self._stop.is_set() and not is_worn and not reader.is_done:
                if limit is None:
                    most = delivery_events(self._assembly.partition_count)
                    reader.batch_events = min(most, self._sizer.events)
                self._deliver(reader.read())
                is_worn = limit is None and self._assembly.pool.is_worn_out
            if self._stop.is_set() or is_worn:
                self._deliver(reader.drain())
            elif self._passed:
                raise SourceChangedError(
                    f"the source changed during this run, for partitions {sorted(self._passed)}: "
                    "give the same source, or a new --data-dir"
                )
        return is_worn

    def _pull(self) -> bool:
        limit, is_worn = self._options.limit, False
        host = self._opened()
        self._reader = self._assembly.join_source(self._devices, limit)
        pull = Pull(self._reader, host.tell)
        host.tell(pull)
        while not pull.done.wait(_LOOK_S):
            self._state.read_events = pull.events
            if not host.is_alive:
                raise host.failure or ActorDeadError(f"actor {host.name} has stopped")
            is_worn = is_worn or (limit is None and self._assembly.pool.is_worn_out)
            if is_worn or self._stop.is_set():
                pull.stop.set()
        self._state.is_ended, self._state.read_events = pull.is_ended, pull.events
        return is_worn

    def _deliver(self, batches: Sequence[SourceBatch]) -> None:
        host = self._opened()
        for batch in batches:
            number = batch.partition
            self._state.is_ended = self._state.is_ended or batch.is_end
            if number in self._passed:
                if batch.offset == self._passed[number]:
                    del self._passed[number]
                continue
            try:
                host.tell(Delivery.of(batch), batch.size_bytes)
            except ActorDeadError as error:
                raise (host.failure or error) from error

    def _ask(self, question: Any) -> Any:
        host = self._opened()
        try:
            return host.ask(question)
        except ActorDeadError as error:
            raise (host.failure or error) from error

    def _opened(self) -> ActorRef:
        if self._host is None:
            raise ActorDeadError(f"host {self._index} is not open")
        return self._host
