"""Who computes in an engine actor: a bounded number at a time, a suspect alone.

A request that was in an actor when its process ended may be why. It is tried again
with nothing beside it, so that what it ends is itself alone: others in the same
process would look as guilty.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LEASE_S: Final = 30.0
"""How long an actor is kept free for a request that does not come: its host died."""


class _Waiter:
    def __init__(self, ticket: str) -> None:
        self.ticket = ticket
        self.admitted = threading.Event()


class Gate:
    """First come, first served. Thread-safe."""

    def __init__(self, limit: int, lease_s: float = LEASE_S) -> None:
        """Let ``limit`` (≥ 1) in at a time; a lease bounds how long a reservation waits."""
        self._limit = limit
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._inside = 0
        self._owner = ""
        self._timer: threading.Timer | None = None

    def reserve(self, ticket: str) -> None:
        """Wait until nobody is inside, and let nobody in but the ticket's owner; blocks.

        The ticket is a name that nobody else has, not empty.
        """
        self._wait(_Waiter(ticket))

    @contextmanager
    def inside(self, ticket: str = "") -> Iterator[bool]:
        """Be inside for as long as a block takes; waits in line, without a ticket.

        A ticket's reservation ends with the block. Yields False where it was over before.
        """
        if ticket:
            with self._lock:
                is_inside = self._owner == ticket and self._timer is not None
                if is_inside:
                    self._stop_timer()
                    self._inside += 1
        else:
            self._wait(_Waiter(""))
            is_inside = True
        try:
            yield is_inside
        finally:
            if is_inside:
                with self._lock:
                    self._inside -= 1
                    if ticket:
                        self._owner = ""
                    self._admit()

    def _wait(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiting.append(waiter)
            self._admit()
        waiter.admitted.wait()

    def _admit(self) -> None:
        while self._waiting and not self._owner:
            first = self._waiting[0]
            if self._inside >= (1 if first.ticket else self._limit):
                return
            if first.ticket:
                self._owner = first.ticket
                self._timer = threading.Timer(self._lease_s, self._expire, (first.ticket,))
                self._timer.daemon = True
                self._timer.start()
            else:
                self._inside += 1
            self._waiting.popleft()
            first.admitted.set()

    def _expire(self, ticket: str) -> None:
        with self._lock:
            if self._owner == ticket and self._timer is not None:
                self._timer = None
                self._owner = ""
                self._admit()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
