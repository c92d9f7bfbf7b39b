"""Admission to an engine actor: a limited number of requests, or one suspect alone.

A request that was in an actor when its process ended may be the cause. It is retried alone, so that
another crash affects no other request: requests in the same process would look as guilty.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LEASE_S: Final = 30.0
"""Time for which an actor is reserved for a request that may never come, if its host died."""


class _Waiter:
    def __init__(self, ticket: str) -> None:
        self.ticket = ticket
        self.admitted = threading.Event()


class Gate:
    """First come, first served. Thread-safe."""

    def __init__(self, limit: int, lease_s: float = LEASE_S) -> None:
        """Admit ``limit`` (≥ 1) requests at a time; a reservation lasts for ``lease_s`` at most."""
        self._limit = limit
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._inside = 0
        self._owner = ""
        self._timer: threading.Timer | None = None

    def reserve(self, ticket: str) -> None:
        """Wait until the gate is empty, then admit only the ticket's owner; blocks.

        The ticket is a unique name, not empty.
        """
        self._wait(_Waiter(ticket))

    @contextmanager
    def inside(self, ticket: str = "") -> Iterator[bool]:
        """Hold a place during a block; without a ticket, wait in line for it.

        A ticket's reservation ends with the block. Yields False if the reservation had expired.
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
