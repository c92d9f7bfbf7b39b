"""A host's ends of the tunnel, when the cloud actor owns the tunnel in another process.

A link carries calls to that process. Its receiver drops what it has seen, so a
call whose answer was lost is simply put again. One call up at a time: frames of
a device must arrive in their order, and calls overtake each other.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Condition, Thread
from threading import Event as Flag
from typing import Any, Final, Protocol

from walle_stream.errors import TunnelClosedError
from walle_stream.types import UplinkFrame

_log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 2
"""Most sends of a host that are not acknowledged; a sender waits beyond them."""

POLL_S: Final = 0.05

_BUFFER_MAX_BYTES: Final = 1024 * 1024


class CloudLink(Protocol):
    """Calls of the process that owns the tunnel; they go on through its restarts.

    Each raises ``TunnelClosedError`` where the link was closed, or the cloud side failed for good.
    """

    def append(self, frames: Sequence[UplinkFrame]) -> None:
        """Have frames appended to the log, in order; blocks until they are durable."""

    def messages(
        self, wanted: Mapping[int, tuple[int, int]]
    ) -> Mapping[int, Sequence[tuple[int, bytes]]]:
        """Return messages down; blocks for the call.

        Each partition gives the positions behind which messages are wanted, and up to which they
        may be forgotten.
        """

    def ask(self, question: Any) -> Any:
        """Put a question of ``actors.holdings`` to the cloud actor; blocks for its answer."""


class RemoteUplink:
    """The way up, as ``ports.Uplink``; a thread of its own makes the calls."""

    def __init__(self, link: CloudLink) -> None:
        """Begin with nothing in flight."""
        self._link = link
        self._condition = Condition()
        self._waiting: deque[Sequence[UplinkFrame]] = deque()
        self._in_flight = 0
        self._acks: dict[int, list[int]] = {}
        self._is_closed = False
        self._thread = Thread(target=self._carry, name="walle-uplink", daemon=True)
        self._thread.start()

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Hand frames over; see ``Uplink.send``.

        Raises:
            TunnelClosedError: The tunnel was closed; the frames stay in the outbox.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or self._in_flight < IN_FLIGHT_MAX)
            if self._is_closed:
                raise TunnelClosedError(
                    f"the way to the cloud is closed: {len(frames)} frames stay in the outbox"
                )
            self._waiting.append(frames)
            self._in_flight += 1
            self._condition.notify_all()

    def acks(self, partition: int) -> Iterable[int]:
        """Return new acknowledgements; see ``Uplink.acks``."""
        with self._condition:
            return self._acks.pop(partition, ())

    def await_idle(self, timeout_s: float) -> bool:
        """Block until every frame that was sent is acknowledged, or none can be any more.

        Returns False where the time was over before.
        """
        with self._condition:
            return self._condition.wait_for(
                lambda: self._is_closed or self._in_flight == 0, timeout_s
            )

    def close(self) -> None:
        """Take no more frames; what is in flight stays in the outbox."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _carry(self) -> None:
        condition, waiting = self._condition, self._waiting
        while True:
            with condition:
                condition.wait_for(lambda: waiting or self._is_closed)
                if self._is_closed:
                    return
                sends = len(waiting)
                frames = [frame for sent in waiting for frame in sent]
                waiting.clear()
            try:
                self._link.append(frames)
            except TunnelClosedError as error:
                _log.debug("the way up ends: %s", error)
                self.close()
                return
            with condition:
                self._in_flight -= sends
                for partition, number, _ in frames:
                    self._acks.setdefault(partition, []).append(number)
                condition.notify_all()


class RemoteDownlink:
    """The way down, as ``ports.Downlink``: what a thread has fetched ahead."""

    def __init__(self, link: CloudLink) -> None:
        """Begin; partitions are known from their first ``receive`` on."""
        self._link = link
        self._condition = Condition()
        self._fetched: dict[int, deque[tuple[int, bytes]]] = {}
        self._last: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self._closed = Flag()
        self._thread = Thread(target=self._fetch, name="walle-downlink", daemon=True)
        self._thread.start()

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages that are here already; see ``Downlink.receive``."""
        with self._condition:
            fetched = self._fetched.get(partition)
            if fetched is None:
                # what is behind its last commit is looked for from now on
                self._fetched[partition] = deque()
                self._last[partition] = position
                return ()
            while fetched and fetched[0][0] <= position:
                fetched.popleft()
            messages: list[tuple[int, bytes]] = []
            size_bytes = 0
            for message in fetched:
                if size_bytes >= max_bytes:
                    break
                messages.append(message)
                size_bytes += len(message[1])
            return messages

    def release(self, partition: int, position: int) -> None:
        """Forget messages, here now and there with the next look; see ``Downlink.release``."""
        with self._condition:
            self._released[partition] = position

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def step(self) -> None:
        """Look once for messages; blocks for the call.

        Raises:
            TunnelClosedError: The link was closed.
        """
        with self._condition:
            wanted = {
                partition: (last, self._released.get(partition, 0))
                for partition, last in self._last.items()
                if sum(len(data) for _, data in self._fetched[partition]) < _BUFFER_MAX_BYTES
            }
        if not wanted:
            return
        came = self._link.messages(wanted)
        with self._condition:
            for partition, messages in came.items():
                if messages:
                    self._fetched[partition].extend(messages)
                    self._last[partition] = messages[-1][0]

    def _fetch(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                self.step()
            except TunnelClosedError as error:
                _log.debug("the way down ends: %s", error)
                return
