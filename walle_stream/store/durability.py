"""Group commit of one store: its writes that survive a power cut.

A write returns with a ticket once the operating system has it. A separate thread flushes the
store's log beside the next writes, so that one flush serves all writes that came during the
previous one. The output of a write (frames, acknowledgements, replies, deletions that others
rely on) waits until its ticket is durable. The flush interval is a number:

====================  ==================================================================
``None`` (``false``)  never: a write counts as durable at once, a power cut may take it
``0`` (``true``)      at once, and again as long as there are new writes
``> 0`` (``interval``)  at most once in this many milliseconds, sooner for a waiting caller
====================  ==================================================================

After a failed flush the contents of the disk are unknown: the store takes no further write, and
waiting output is never released. Each partition's database has its own group commit.
"""

from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import StoreError, WalleError
from walle_stream.faults import slow_sync

_JOIN_S: Final = 30.0


class Durability:
    """Tickets of one store. Any thread; flushes run in a thread of their own."""

    def __init__(self, flush: Callable[[], None], every_ms: float | None, name: str = "") -> None:
        """Begin without a write.

        ``flush`` flushes the store's log and blocks without the interpreter's lock. ``every_ms`` is
        documented above; None never flushes.
        """
        self._flush = flush
        self._every_ms = every_ms
        self._name = name
        self._condition = Condition()
        self._written = self._durable = self._urgent = 0
        self._failure: WalleError | None = None
        self._thread: Thread | None = None
        self._is_closed = False
        self.flushes = 0

    @property
    def written(self) -> int:
        """Ticket of the last write."""
        return self._written

    @property
    def is_behind(self) -> bool:
        """Whether some write is not durable yet."""
        return self._every_ms is not None and self._durable < self._written

    def commit(self) -> int:
        """Record a write that returned, and return its ticket; never blocks.

        Raises:
            WalleError: A flush failed: open the store again.
        """
        if self._every_ms is None:
            self._written += 1
            return self._written
        with self._condition:
            self._check()
            # the thread is awake while a flush runs or is scheduled
            is_resting = self._written == self._durable
            self._written += 1
            if self._thread is None:
                self._thread = Thread(
                    target=self._run, name=f"walle-sync-{self._name}", daemon=True
                )
                self._thread.start()
            elif is_resting:
                self._condition.notify_all()
            return self._written

    def durable(self) -> int:
        """Return the last ticket up to which writes are durable; never blocks."""
        if self._every_ms is None:
            return self._written
        if self._failure is not None:
            self._check()
        return self._durable

    def wait(self, ticket: int | None = None) -> None:
        """Block until a write, or all writes so far, are durable; flushes at once.

        Raises:
            WalleError: A flush failed.
            StoreError: The store was closed before.
        """
        if self._every_ms is None:
            return
        with self._condition:
            wanted = self._written if ticket is None else ticket
            self._urgent = max(self._urgent, wanted)
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: self._durable >= wanted or self._failure is not None or self._is_closed
            )
            self._check()
            if self._durable < wanted:
                raise StoreError(f"{self._name} was closed before its last write was durable")

    def close(self) -> None:
        """Flush the writes, then end; blocks, may be called twice. Raises nothing."""
        with self._condition:
            self._urgent = self._written
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _check(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure

    def _run(self) -> None:
        due_ms = 0.0
        while (ticket := self._next(due_ms)) is not None:
            due_ms = monotonic_ms() + (self._every_ms or 0.0)
            failure: WalleError | None = None
            try:
                slow_sync()
                self._flush()
            except WalleError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - waiting callers must get it
                failure = StoreError(f"{self._name} could not be flushed: {error}")
            with self._condition:
                if failure is None:
                    self._durable = ticket
                    self.flushes += 1
                self._failure = failure
                self._condition.notify_all()

    def _next(self, due_ms: float) -> int | None:
        # the ticket to flush, once it is due; None at the end
        with self._condition:
            while self._failure is None:
                if self._written > self._durable:
                    wait_ms = due_ms - monotonic_ms()
                    if not self._every_ms or wait_ms <= 0 or self._urgent > self._durable:
                        return self._written
                    self._condition.wait(wait_ms / 1000.0)
                elif self._is_closed:
                    return None
                else:
                    self._condition.wait()
            return None
