"""Many devices over keep-alive connections, from one thread on epoll.

The load uses raw sockets, and almost all of a request is made beforehand. A request costs this
process a send, a receive and a few dictionary look-ups, a fraction of the service's own cost. How
busy it was stands in the result: above 90 % of a core its figures say nothing of the service.
"""

import random
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any, Final, NamedTuple

from vm_parts.measuring import distribution

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_TIMEOUT_S: Final = 30.0
_EVENTS: Final = 256


class Rate(NamedTuple):
    """When requests are due."""

    per_s: float
    """0: as fast as answers come (closed loop); else at random times, whatever the answers do
    (open loop, Poisson)."""
    is_dropped: bool = False
    """Whether a request that is due while all connections are busy is dropped and counted.
    Otherwise it waits, and its time counts from when it was due (no coordinated omission)."""


class _Connection:
    __slots__ = ("began", "buffer", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.began = 0.0


def run_load(
    address: tuple[str, int],
    requests: Iterator[bytes],
    connections: int,
    seconds: float,
    rate: Rate,
    seed: int = 1,
) -> dict[str, Any]:
    """Send for a while; blocks.

    Args:
        address: Of the service.
        requests: Whole ones, without end.
        connections: Opened before the clock starts.
        seconds: How long.
        rate: When they are due.
        seed: Of the times.

    Returns:
        Answers by status, their times in ms, the 99th percentile of all where a refused one never
        comes, rate, how busy this process was.

    Raises:
        ConnectionError: The service closed a connection.
    """
    opened = []
    poll = select.epoll()
    by_fd = {}
    for _ in range(connections):
        each = _Connection(address)
        opened.append(each)
        # one that the service has not accepted yet would wait for that as well
        _ask(each.socket, next(requests))
        each.socket.setblocking(False)  # noqa: FBT003 - its only parameter
        by_fd[each.socket.fileno()] = each
        poll.register(each.socket.fileno(), select.EPOLLIN)
    try:
        return _Run(poll, by_fd, requests, rate, random.Random(seed)).go(seconds)
    finally:
        poll.close()
        for each in opened:
            each.socket.close()


def ask_once(address: tuple[str, int], request: bytes) -> tuple[int, bytes]:
    """Send a request, and return the answer's status and body; blocks.

    Args:
        address: Of the service.
        request: A whole one.
    """
    with socket.create_connection(address, timeout=_TIMEOUT_S) as opened:
        return _ask(opened, request)


def _ask(opened: socket.socket, request: bytes) -> tuple[int, bytes]:
    opened.sendall(request)
    with HTTPResponse(opened) as answer:
        answer.begin()
        return answer.status, answer.read()


class _Run:
    def __init__(
        self,
        poll: select.epoll,
        by_fd: dict[int, _Connection],
        requests: Iterator[bytes],
        rate: Rate,
        rng: random.Random,
    ) -> None:
        self._poll, self._by_fd, self._requests = poll, by_fd, requests
        self._rate, self._rng = rate, rng
        self._idle = deque(by_fd.values())
        self._dropped = 0
        self._waiting: deque[float] = deque()
        self._times: dict[bytes, list[float]] = {}

    def go(self, seconds: float) -> dict[str, Any]:
        clock = time.perf_counter
        cpu = time.process_time()
        began = now = clock()
        due, end = began, began + seconds
        # answers that are still due are waited for: a slow one counts as any other
        while now < end or len(self._idle) < len(self._by_fd):
            if now < end:
                due = self._send_closed(now) if not self._rate.per_s else self._send_due(due, now)
            elif now > end + _TIMEOUT_S:
                raise ConnectionError("the service does not answer any more")
            else:
                due = now + 0.01
            for fd, _ in self._poll.poll(max(min(due, now + 0.01) - clock(), 0), _EVENTS):
                self._receive(self._by_fd[fd], clock)
            now = clock()
        wall = now - began
        answered = sum(map(len, self._times.values()))
        return {
            "offered_per_s": self._rate.per_s,
            "per_s": round(answered / wall, 1),
            "seconds": round(wall, 2),
            "dropped": self._dropped + len(self._waiting),
            "p99_ms": self._p99_ms(),
            "generator_busy": round((time.process_time() - cpu) / wall, 3),
            "by_status": {
                status.decode(): {
                    "count": len(taken),
                    "per_s": round(len(taken) / wall, 1),
                    "ms": distribution([each * 1e3 for each in taken]),
                }
                for status, taken in sorted(self._times.items())
            },
        }

    def _p99_ms(self) -> float | None:
        """Of all answers; one that was refused never comes. None: never."""
        good = sorted(
            each
            for status, taken in self._times.items()
            if status.startswith(b"2")
            for each in taken
        )
        rank = int(0.99 * sum(map(len, self._times.values())))
        return round(good[rank] * 1e3, 3) if rank < len(good) else None

    def _send_closed(self, now: float) -> float:
        while self._idle:
            self._send(self._idle.popleft(), now)
        return now + 1.0

    def _send_due(self, due: float, now: float) -> float:
        while due <= now:
            if self._idle and not self._waiting:
                self._send(self._idle.popleft(), due)
            elif self._rate.is_dropped:
                self._dropped += 1
            else:
                self._waiting.append(due)
            due += self._rng.expovariate(self._rate.per_s)
        while self._waiting and self._idle:
            self._send(self._idle.popleft(), self._waiting.popleft())
        return due

    def _send(self, connection: _Connection, began: float) -> None:
        connection.began = began
        request = next(self._requests)
        if connection.socket.send(request) != len(request):
            raise ConnectionError("a request does not fit into a socket's buffer")

    def _receive(self, connection: _Connection, clock: Any) -> None:
        data = connection.socket.recv(65_536)
        if not data:
            raise ConnectionError("the service closed a connection")
        connection.buffer += data
        data = connection.buffer
        head = data.find(_HEAD_END)
        if head < 0:
            return
        place = data.find(_LENGTH, 0, head)
        length = 0
        if place >= 0:
            place += len(_LENGTH)
            length = int(data[place : data.index(b"\r\n", place)])
        if len(data) < head + len(_HEAD_END) + length:
            return
        connection.buffer = b""
        self._times.setdefault(data[9:12], []).append(clock() - connection.began)
        self._idle.append(connection)
