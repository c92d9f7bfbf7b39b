"""The cloud side as a process: it owns the tunnel's log and the feature table."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from walle_stream.actors.actor import ActorRef
from walle_stream.actors.cloud.cloud_actor import Drain
from walle_stream.actors.parts.calls import MESSAGES_MAX_BYTES
from walle_stream.app.assembly import Assembly
from walle_stream.app.ray.logs import LogQueue, LogRecords
from walle_stream.app.ray.session import Versions, versions_here
from walle_stream.app.report import CloudReport
from walle_stream.clock import process_cpu_s
from walle_stream.cloud.calls import ServiceCounts
from walle_stream.errors import ActorDeadError
from walle_stream.store.locks import LOCKS_TIMEOUT_S, wait_for_locks
from walle_stream.types import UplinkFrame


class CloudState(msgspec.Struct):
    """What the driver asks for now and then."""

    failure: BaseException | None
    losses: int
    sink_lags: Mapping[str, int]
    service_counts: ServiceCounts
    cpu_s: float
    logs: LogRecords


class CloudProcess:
    """Class of the Ray actor. Its calls run in several threads, and may block."""

    def __init__(self, assembly: Assembly, data_dir: str, cwd: str, log_level: int) -> None:
        """Keep what it needs; nothing is opened.

        The driver has the data directory locked; paths are relative to its ``cwd``.
        """
        os.chdir(cwd)
        self._logs = LogQueue(log_level)
        self._assembly = assembly
        self._path = Path(data_dir)
        self._stack = ExitStack()
        self._cloud: ActorRef | None = None

    def hello(self) -> tuple[int, Versions]:
        """Return the process id, and what must be as at the driver's."""
        return os.getpid(), versions_here()

    def open(self) -> None:
        """Open log and table and begin to merge; blocks for a dying owner."""
        assembly, stack = self._assembly, self._stack
        wait_for_locks([self._path / "tunnel", self._path / "cloud"])
        assembly.open_cloud(stack, self._path)
        self._cloud = ActorRef(assembly.make_cloud())
        stack.callback(self._cloud.join, LOCKS_TIMEOUT_S)
        stack.callback(self._cloud.stop)

    def append(self, frames: Sequence[UplinkFrame]) -> None:
        """Append frames to the log; blocks while it is full.

        Raises:
            TunnelClosedError: The cloud side failed.
        """
        tunnel = self._assembly.tunnel
        tunnel.send(frames)
        tunnel.settle()
        for partition in {partition for partition, _, _ in frames}:
            tunnel.acks(partition)  # the answer of this call is the acknowledgement

    def messages(
        self, wanted: Mapping[int, tuple[int, int]]
    ) -> dict[int, Sequence[tuple[int, bytes]]]:
        """Return messages down; see ``CloudLink.messages``."""
        downlink = self._assembly.tunnel.downlink
        found: dict[int, Sequence[tuple[int, bytes]]] = {}
        for partition, (position, released) in wanted.items():
            if released:
                downlink.release(partition, released)
            messages = downlink.receive(partition, position, MESSAGES_MAX_BYTES)
            if messages:
                found[partition] = messages
        return found

    def ask(self, question: Any) -> Any:
        """Put a question to the cloud actor; see ``CloudLink.ask``.

        Raises:
            ActorDeadError: It was not open, or has failed.
        """
        if self._cloud is None:
            raise ActorDeadError("the cloud side is not open")
        return self._cloud.ask(question)

    def state(self) -> CloudState:
        """Return how it goes; never blocks."""
        assembly = self._assembly
        failure = None if self._cloud is None else self._cloud.failure
        losses = 0 if self._cloud is None else assembly.cloud_store.stats.losses
        figures = assembly.sink_lags, assembly.service_counts, process_cpu_s()
        return CloudState(failure, losses, *figures, self._logs.take())

    def close(self) -> tuple[CloudReport, CloudState]:
        """Merge all that is in the log, close it; blocks.

        Returns what the cloud side holds, and how it went at last.

        Raises:
            ActorDeadError: It was not open, or has failed.
        """
        report = msgspec.convert(self.ask(Drain(is_last=True)), CloudReport, from_attributes=True)
        state = self.state()
        self._stack.close()
        return report, state
