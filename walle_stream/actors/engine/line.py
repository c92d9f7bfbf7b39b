"""Choice of an engine actor for a request: the least loaded of the running ones.

An actor has at most a fixed number of requests of this process. Further requests wait in line, in
order of arrival. The module has no thread and does not use Ray.
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
    """Places at actors, and the requests that wait for one. Thread-safe."""

    def __init__(self, count: int, limit: int, first: int = 0) -> None:
        """Begin with all actors up and idle; an actor takes at most ``limit`` requests (≥ 1).

        ``first`` is preferred among equal actors; each process that shares them passes another one.
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
        """Return an actor with a free place, held until ``give``; blocks until there is one.

        Raises:
            WalleError: The error given to ``end``, or to ``lose`` for the last actor.
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
        """Release a place."""
        with self._lock:
            self._loads[index] -= 1
            self._serve()

    def is_first_down(self, index: int) -> bool:
        """Stop choosing an actor whose process ended, until ``up``.

        Returns whether the actor counted as running until now, so that the caller must watch it.
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
        """Give up an actor; if all are lost, end every wait."""
        with self._lock:
            self._lost[index] = why
            self._serve()

    def end(self, why: WalleError) -> None:
        """End every wait: ``reserve`` raises the error from now on."""
        with self._lock:
            self._end = why
            self._serve()

    @property
    def loads(self) -> list[int]:
        """Number of requests at each actor."""
        with self._lock:
            return [*self._loads]

    @property
    def waiting_count(self) -> int:
        """Number of requests without an actor."""
        with self._lock:
            return len(self._waiting)

    def _error(self) -> WalleError:
        with self._lock:
            # a new object for each thread, as each needs its own traceback
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
