"""The cloud actor: takes frames off the tunnel and keeps the feature table.

Exactly-once is decided in its store: features, what has been seen of each
device and the tunnel's position commit in one write batch.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from walle_stream.actors.actor import Actor
from walle_stream.actors.cloud.holdings import CallsInHand, LastFrame, LastNumbers, calls_in_hand
from walle_stream.actors.cloud.inbox import Inbox
from walle_stream.cloud.calls import CloudCalls, ServiceCounts
from walle_stream.cloud.frame_table import FrameTable
from walle_stream.cloud.service_pool import Served
from walle_stream.ports import Downlink, DownlinkSender, UplinkReceiver

MERGE_MAX_BYTES: Final = 1024 * 1024


class Drain(msgspec.Struct):
    """Question: merge all that is in the tunnel, answer with the statistics."""

    is_last: bool = False
    """Whether a run ends with it: what was merged is durable then."""


class CloudActor(Actor):
    """The cloud side of one tunnel; see the module's docstring."""

    name = "cloud"
    idle_interval_s = 0.02

    def __init__(
        self,
        store: FrameTable,
        receiver: UplinkReceiver,
        sender: DownlinkSender,
        downlink: Downlink,
        close_tunnel: Callable[[], None],
        services: Mapping[str, Served] | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        """Take over the cloud side; the downlink is only looked at.

        ``close_tunnel`` is called after a failure: senders that wait for room must learn that
        nobody will make any.
        """
        self._close_tunnel = close_tunnel
        self._store = store
        self._receiver = receiver
        self._released = -1
        self._inbox = inbox
        self._downlink = downlink
        self._calls = CloudCalls(lambda: [store], sender, services or {})

    @property
    def services(self) -> ServiceCounts:
        """What became of the calls of services; any thread."""
        return self._calls.counts

    def on_start(self) -> None:
        """Let the tunnel forget what was merged before a death."""
        self._release()

    def on_message(self, message: Any) -> Any:
        """Answer ``Drain`` and the questions of ``actors.holdings``.

        Raises:
            TypeError: Another message; a bug of the sender.
        """
        if isinstance(message, Drain):
            self.on_idle()
            if message.is_last:
                self._store.settle()
            return self._store.stats
        if isinstance(message, LastFrame):
            self.on_idle()
            return self._store.last_frame(message.incarnation, message.partition)
        if isinstance(message, LastNumbers):
            return self._store.last_numbers(message.incarnation, message.device_ids)
        if isinstance(message, CallsInHand):
            self.on_idle()
            return calls_in_hand(self._store, self._downlink, message)
        raise TypeError(f"the cloud actor got {type(message).__name__}")

    def on_failure(self, error: BaseException) -> bool:
        """End the tunnel with the actor: no sender may wait for ever."""
        self._close_tunnel()
        return super().on_failure(error)

    def on_stop(self) -> None:
        """Ask services no more."""
        self._calls.close()

    def on_idle(self) -> None:
        """Merge what has arrived, let the tunnel forget it, then see to calls and messages."""
        store, receiver = self._store, self._receiver
        while frames := receiver.receive(store.position, MERGE_MAX_BYTES):
            store.merge(frames)
            self._release()
        self._release()
        self._calls.step()
        if self._inbox is not None:
            self._inbox.step()

    def _release(self) -> None:
        position = self._store.durable_position()
        if position != self._released:
            self._receiver.release(position)
            self._released = position
