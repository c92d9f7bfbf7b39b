"""The agent of one device: the parts of a pipeline's run, with one partition and one device.

It is the local runtime: device host, VMs, store, outbox and tunnel are those of every run.
Only the source differs, which is what the device gives its agent, and the partition, which
is the one that the device's key belongs to.
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
"""Reads what the device gives."""

_LOOK_S: Final = 0.05
_NAME_MAX: Final = 120


def device_folder(pipeline: str, device_id: str) -> Path:
    """Return the data directory of a device whose user gives none; its name is escaped."""
    name = quote(device_id, safe="")
    if len(name) > _NAME_MAX:
        digest = blake2b(device_id.encode(), digest_size=8).hexdigest()
        name = f"{name[:_NAME_MAX]}-{digest}"
    return Path("walle-data") / f"{pipeline}-devices" / f"device-{name}"


class DeviceAssembly(Assembly):
    """The parts of a device's agent. Load, attach, then as any assembly."""

    device_id = ""
    """Whose agent; set by ``attach``."""
    _home: Callable[[int], int]

    def attach(self, device_id: str, events: Path | None, *, follows: bool) -> None:
        """Say whose agent this is; the definition's source is put aside.

        Events are JSON Lines (None: of standard input); ``follows`` waits for more at the end.

        Raises:
            SpecFileError: The connector of events is not installed.
        """
        self.device_id = device_id
        self._home = partial(self._placing, device_id)
        number = self._home(self.partition_count)
        self.partitions = (number,)
        # with another number of partitions the device would be in another one
        self._device_end = {"partitions": self.partition_count}
        self._source = load_connector(EVENTS_CONNECTOR).open_device(
            events, device_id, number, follows=follows
        )
        self.is_placed = False

    @override
    def open_directory(self, stack: ExitStack, path: Path) -> DataDir:
        """Take the data directory; where topics have grown, move the device to its partition."""
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
        """Return the one partition that there is."""
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
        """Prepare; nothing is opened yet."""
        super().__init__(assembly, options, beside)
        self.waiting_bytes = 0
        """Of frames that nobody has acknowledged, when the run has ended."""

    @override
    def _settle(self) -> None:
        """Wait for replies, then until everything is acknowledged or somebody says stop."""
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
