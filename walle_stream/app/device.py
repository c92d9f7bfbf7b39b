"""The agent of one device: a pipeline's run with one partition and one device.

The agent uses the local runtime, with the usual device host, VMs, store, outbox and tunnel. Only
two parts differ: the source is the device's own input, and the partition is that of the device's
key.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Final, override
from urllib.parse import quote

import msgspec

from walle_stream.actors.device_host import GetStatus, Settle
from walle_stream.actors.plan.partition_plan import PartitionPlan, PartitionStatus
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import Beside, LocalRun
from walle_stream.app.moving import MovedDownlink, move_device
from walle_stream.app.options import RunOptions
from walle_stream.ports import DeadLetterSink, DeviceTunnel, Downlink
from walle_stream.spec.connectors import load_connector
from walle_stream.store.datadir import DataDir

EVENTS_CONNECTOR: Final = "events"
"""Connector that reads the device's input."""

_LOOK_S: Final = 0.05
_NAME_MAX: Final = 120


def device_folder(pipeline: str, device_id: str) -> Path:
    """Return the default data directory of a device; its name is escaped."""
    name = quote(device_id, safe="")
    if len(name) > _NAME_MAX:
        digest = blake2b(device_id.encode(), digest_size=8).hexdigest()
        name = f"{name[:_NAME_MAX]}-{digest}"
    return Path("walle-data") / f"{pipeline}-devices" / f"device-{name}"


class DeviceAssembly(Assembly):
    """The parts of a device's agent: load, attach, then use as any assembly."""

    device_id = ""
    """Id of the agent's device; set by ``attach``."""
    _home: Callable[[int], int]

    def attach(self, device_id: str, events: Path | None, *, follows: bool) -> None:
        """Set the agent's device, and replace the definition's source.

        Args:
            device_id: The device of this agent.
            events: A JSON Lines file; None: standard input.
            follows: Whether to wait for more events at the end of the file.

        Raises:
            SpecFileError: The connector ``events`` is not installed.
        """
        self.device_id = device_id
        self._home = partial(self._placing, device_id)
        number = self._home(self.partition_count)
        self.partitions = (number,)
        # another number of partitions would place the device elsewhere
        self._device_end = {"partitions": self.partition_count}
        self._source = load_connector(EVENTS_CONNECTOR).open_device(
            events, device_id, number, follows=follows
        )
        self.is_placed = False

    @override
    def open_directory(self, stack: ExitStack, path: Path) -> DataDir:
        """Open the data directory; if topics have grown, move the device to its new partition."""
        if not self.has_cloud:
            compression = self._spec.tunnel.compression
            move_device(path, self._home, self.partition_count, compression)
        return super().open_directory(stack, path)

    @override
    def _downlink_of(self, tunnel: DeviceTunnel) -> Downlink:
        counts = (*self._data_dir.meta.grown_from, self.partition_count)
        places = [number for number, _ in groupby(map(self._home, counts))]
        return MovedDownlink(tunnel.downlink, places) if len(places) > 1 else tunnel.downlink

    @override
    def partition_of(self, device_id: str) -> int:
        """Return the only partition."""
        return self.partitions[0]

    @override
    def _make_plan(self, sink: DeadLetterSink | None, *, is_measured: bool) -> PartitionPlan:
        plan = super()._make_plan(sink, is_measured=is_measured)
        return msgspec.structs.replace(plan, only_device=self.device_id)


class DeviceRun(LocalRun):
    """One run of a device's agent. Use once."""

    def __init__(
        self, assembly: DeviceAssembly, options: RunOptions, beside: Beside | None = None
    ) -> None:
        """Prepare the run without opening anything."""
        super().__init__(assembly, options, beside)
        self.waiting_bytes = 0
        """Bytes of frames that are not acknowledged when the run has ended."""

    @override
    def _settle(self) -> None:
        """Wait for replies, then until all frames are acknowledged or a stop is requested."""
        super()._settle()
        [host] = self._hosts
        while not self._stop.is_set():
            self._ask(host, Settle(0.0))
            if not any(status.outbox_bytes for status in self._ask(host, GetStatus())):
                return
            self._assembly.check_cloud()
            self._stop.wait(_LOOK_S)

    @override
    def _close_hosts(self) -> list[PartitionStatus]:
        statuses = super()._close_hosts()
        self.waiting_bytes = sum(status.outbox_bytes for status in statuses)
        return statuses
