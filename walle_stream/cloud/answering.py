"""Thread that answers calls beside a reader, which must not wait for a service or a broker."""

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Final

from walle_stream.cloud.calls import CloudCalls, ServiceCounts
from walle_stream.cloud.inbox import LOOK_MS, Inbox
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.service_pool import Served
from walle_stream.ports import DownlinkSender

_LOOK_S: Final = 0.02
"""Interval between checks for hanging calls and for acknowledgements."""

_IDLE_S: Final = 1.0
_JOIN_S: Final = 10.0


class AnsweringThread:
    """Thread that steps ``CloudCalls`` whenever there is work."""

    def __init__(
        self,
        stores: Callable[[], Sequence[PartitionTable]],
        sender: DownlinkSender,
        services: Mapping[str, Served],
        inbox: Inbox | None = None,
    ) -> None:
        """Start the thread; the sender must have room for all replies in hand."""
        self._inbox = inbox
        self._woken, self._ends = Event(), Event()
        self._calls = CloudCalls(stores, sender, services, self._woken.set)
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="walle-calls", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Announce a new call; any thread."""
        self._woken.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if any.

        Raises:
            WalleError: Calls are no longer answered.
        """
        if self._failure is not None:
            raise self._failure

    @property
    def counts(self) -> ServiceCounts:
        """Outcomes of calls; any thread."""
        return self._calls.counts

    def close(self) -> None:
        """End the thread; blocks for a moment. Unanswered calls stay in their store."""
        self._ends.set()
        self._woken.set()
        self._thread.join(_JOIN_S)
        self._calls.close()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._woken.clear()
                wait_s = _LOOK_S if self._calls.step() else _IDLE_S
                if self._inbox is not None:
                    self._inbox.step()
                    wait_s = min(wait_s, LOOK_MS / 1000.0)
                self._woken.wait(wait_s)
        except Exception as error:  # noqa: BLE001 - the reader raises it
            self._failure = error
