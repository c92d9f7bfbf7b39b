"""Answers calls beside a reader, which must not wait for a service, nor for a broker."""

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Final

from walle_stream.cloud.calls import CloudCalls, ServiceCounts
from walle_stream.cloud.inbox import LOOK_MS, Inbox
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.service_pool import Served
from walle_stream.ports import DownlinkSender

_LOOK_S: Final = 0.02
"""Between looks for what hangs, and for acknowledgements."""

_IDLE_S: Final = 1.0
_JOIN_S: Final = 10.0


class AnsweringThread:
    """Steps ``CloudCalls`` whenever there is something to do."""

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
        """Say that a call came; any thread."""
        self._woken.set()

    def check(self) -> None:
        """Raise what has ended the thread, if anything has.

        Raises:
            WalleError: Calls are answered no more.
        """
        if self._failure is not None:
            raise self._failure

    @property
    def counts(self) -> ServiceCounts:
        """What became of the calls; any thread."""
        return self._calls.counts

    def close(self) -> None:
        """End the thread; blocks for a moment. What is not answered stays in its store."""
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
