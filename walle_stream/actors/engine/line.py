"""Which engine actor a request goes to: the least loaded of those that are up.

An actor has at most a fixed number of requests of this process; who finds all of them busy
waits in line, and is served in the order of coming. No thread of its own, no Ray.
"""

import threading
from collections import deque
from typing import Final

from walle_stream.errors import WalleError

_NONE: Final = -1


class _Waiter:
    def __init__(self) -> None:
        self.index = _NONE
        self.is_served = threading.Event()


class EngineLine:
    """Origins at actors, and who waits for one. Thread-safe."""

    def __init__(self, count: int, limit: int, first: int = 0) -> None:
        """Begin with all actors up and idle; an actor takes at most ``limit`` requests (≥ 1).

        ``first`` is chosen first among equals: another one for each process that shares them.
        """
        self._lock = threading.Lock()
        self._limit = limit
        self._loads = [0] * count
        self._order = [(first + number) % count for number in range(count)]
        self._is_up = [True] * count
        self._lost: dict[int, WalleError] = {}
        self._waiting: deque[_Waiter] = deque()
        self._end: WalleError | None = None

    def reserve(self) -> int:
        """Return an actor that has a place, until ``give``; blocks until there is one.

        Raises:
            WalleError: What ``end`` was told, or ``lose`` of the last actor.
        """
        waiter = _Waiter()
        with self._lock:
            self._waiting.append(waiter)
            self._serve()
        waiter.is_served.wait()
        if waiter.index == _NONE:
            raise self._error()
        return waiter.index

    def give(self, index: int) -> None:
        """Give a place back."""
        with self._lock:
            self._loads[index] -= 1
            self._serve()

    def is_first_down(self, index: int) -> bool:
        """Choose an actor, whose process ended, no more until it is up.

        Returns whether it was up as far as was known: nobody looks after it yet.
        """
        with self._lock:
            was_up, self._is_up[index] = self._is_up[index], False
            return was_up

    def up(self, index: int) -> None:
        """Choose an actor again."""
        with self._lock:
            self._is_up[index] = True
            self._lost.pop(index, None)
            self._serve()

    def lose(self, index: int, why: WalleError) -> None:
        """Wait no more for an actor; where all are lost nobody waits any more."""
        with self._lock:
            self._lost[index] = why
            self._serve()

    def end(self, why: WalleError) -> None:
        """Let nobody wait any more: ``reserve`` raises the error from now on."""
        with self._lock:
            self._end = why
            self._serve()

    @property
    def loads(self) -> list[int]:
        """Requests at each actor."""
        with self._lock:
            return [*self._loads]

    @property
    def waiting_count(self) -> int:
        """Requests without an actor."""
        with self._lock:
            return len(self._waiting)

    def _error(self) -> WalleError:
        with self._lock:
            # a new object for each thread: a traceback is one's own
            error = self._end or next(reversed(self._lost.values()))
            return type(error)(error.message)

    def _serve(self) -> None:
        if self._end is not None or len(self._lost) == len(self._loads):
            while self._waiting:
                self._waiting.popleft().is_served.set()
            return
        while self._waiting:
            free = [
                index
                for index in self._order
                if self._is_up[index] and self._loads[index] < self._limit
            ]
            if not free:
                return
            index = min(free, key=self._loads.__getitem__)
            self._loads[index] += 1
            waiter = self._waiting.popleft()
            waiter.index = index
            waiter.is_served.set()
