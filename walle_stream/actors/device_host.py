"""The device host: the actor that owns partitions and all their devices.

It runs its partitions' turns one after the other in its own thread; the VMs it
calls run beside it on their own interpreter locks. Devices are virtual actors
inside: activated by their first event, passivated when others are more recent.
"""

from collections.abc import Callable
from threading import Event as Flag
from typing import Any, Final

import msgspec

from walle_stream.actors.actor import Actor
from walle_stream.actors.batching import BatchSizer
from walle_stream.actors.partition import PartitionHost, PartitionStatus
from walle_stream.actors.supervisor import RestartPolicy, Supervisor
from walle_stream.clock import monotonic_ms
from walle_stream.ports import SourceBatch

SETTLE_POLL_S: Final = 0.005
"""How often replies are looked for, while nothing else is left to do."""


class Deliver(msgspec.Struct):
    """Message: a batch for one of the host's partitions."""

    batch: SourceBatch
    delivered_ms: float
    """Monotonic clock when the source handed it over, for latencies."""


class GetOffsets(msgspec.Struct):
    """Question: the committed offset of every partition that has one."""


class GetStatus(msgspec.Struct):
    """Question: the partition hosts' figures, for reports and metrics."""


class Settle(msgspec.Struct):
    """Question: wait for the replies to open calls; answers how many are missing."""

    timeout_s: float


class Close(msgspec.Struct):
    """Question: flush the tunnel and close the partitions; the last message."""

    flush_timeout_s: float = 5.0


class DeviceHost(Actor):
    """Hosts the devices of some partitions; see the module's docstring."""

    idle_interval_s = 0.05

    def __init__(
        self,
        name: str,
        open_partitions: Callable[[], list[PartitionHost]],
        policy: RestartPolicy,
        sizer: BatchSizer,
    ) -> None:
        """Describe the host; nothing is opened yet.

        Args:
            name: Shown in logs.
            open_partitions: Opens the partitions; run in the actor's thread.
            policy: How often a failed turn is tried again.
            sizer: Learns from the turns.
        """
        self.name = name
        self._open = open_partitions
        self._policy = policy
        self._sizer = sizer
        self._partitions: dict[int, PartitionHost] = {}
        self._supervisors: dict[int, Supervisor] = {}

    def on_start(self) -> None:
        """Open the partitions."""
        for partition in self._open():
            number = partition.number
            self._partitions[number] = partition
            self._supervisors[number] = Supervisor(
                f"partition {number}", partition.restart, self._policy
            )

    def on_message(self, message: Any) -> Any:
        """Handle a batch or answer a question; a turn ends with its commit.

        Raises:
            TypeError: An unknown message; a bug of the sender.
        """
        if isinstance(message, Deliver):
            number = message.batch.partition
            began_ms = monotonic_ms()
            partition = self._partitions[number]
            self._supervisors[number].run(
                lambda: partition.deliver(message.batch, message.delivered_ms)
            )
            self._sizer.add(len(message.batch.events), monotonic_ms() - began_ms)
            return None
        if isinstance(message, GetOffsets):
            return {
                number: offset
                for number, partition in self._partitions.items()
                if (offset := partition.offset) is not None
            }
        if isinstance(message, GetStatus):
            return [partition.status() for partition in self._partitions.values()]
        if isinstance(message, Settle):
            return self._settle(monotonic_ms() + message.timeout_s * 1000.0)
        if isinstance(message, Close):
            deadline_ms = monotonic_ms() + message.flush_timeout_s * 1000.0
            for partition in self._partitions.values():
                partition.close(deadline_ms)
            status = [partition.status() for partition in self._partitions.values()]
            self._partitions = {}
            return status
        raise TypeError(f"device host {self.name} got {type(message).__name__}")

    def peek(self) -> list[PartitionStatus]:
        """Return the partitions' figures as of their last commits; any thread, at once.

        A question would wait behind all the batches in the mailbox.
        """
        statuses = [partition.status() for partition in list(self._partitions.values())]
        for status in statuses:
            status.latencies = status.latencies.copy()
        return statuses

    def on_idle(self) -> None:
        """Let the partitions take acknowledgements and downlink messages."""
        for number, partition in self._partitions.items():
            self._supervisors[number].run(partition.idle)

    def _settle(self, deadline_ms: float) -> int:
        while True:
            self.on_idle()
            missing = sum(partition.open_calls for partition in self._partitions.values())
            if not missing or monotonic_ms() >= deadline_ms:
                return missing
            Flag().wait(SETTLE_POLL_S)

    def on_stop(self) -> None:
        """Close what a failure left open; commits nothing."""
        for partition in self._partitions.values():
            partition.abandon()
