"""Polls a consumer in a thread of its own, one poll at a time and only when asked.

Why not in the reader's thread: a member that joins a group must stay in one poll until
the others have joined, too (kafka-python 3.0 begins anew when it finds a join done that it
was not waiting for), and that takes seconds, while a reader must come back in milliseconds.
Between ``take`` and ``give`` the consumer is the reader's, but for polls that it asked for;
nothing is fetched ahead of what was asked for. A reader that does not come back for some
time, because its host waits for room in the tunnel, is stood in for: the group counts polls.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from walle_connectors.kafka.source.fetching import Polled
from walle_stream.clock import monotonic_ms

POLL_MS: Final = 1_000
"""Longest poll; it ends at once when records come."""


class PollThread:
    """Runs polls beside their reader."""

    def __init__(
        self,
        poll: Callable[[int], Polled],
        name: str,
        stand_in: Callable[[], None],
        patience_s: float,
    ) -> None:
        """Start the thread; ``poll`` takes the number of records, and blocks for some ``POLL_MS``.

        Where nobody took the consumer for ``patience_s``, the thread runs ``stand_in``, with the
        consumer taken; an error of it is the reader's when it takes it.
        """
        self._poll = poll
        self._stand_in = stand_in
        self._patience_s = patience_s
        self._given_s = 0.0
        self._consumer = threading.RLock()  # leaving may be a part of a turn
        self._failure: BaseException | None = None
        self._asked: SimpleQueue[int] = SimpleQueue()  # 0: the end
        self._answers: SimpleQueue[Polled | BaseException] = SimpleQueue()
        self.is_busy = False
        """Whether an answer is to come, or was not taken yet; the reader's."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float) -> bool:
        """Take the consumer, to poll and between polls; ``give`` it back.

        Waits ``wait_s`` at most while somebody stands in for the reader; False: it was not taken.

        Raises:
            BaseException: What the stand-in raised before.
        """
        if not self._consumer.acquire(timeout=wait_s):
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            self._consumer.release()
            raise failure
        return True

    def give(self) -> None:
        """Give the consumer back; a poll that was asked for may go on."""
        self._given_s = monotonic_ms() / 1000.0
        self._consumer.release()

    def poll(self, most: int, wait_s: float) -> Polled | None:
        """Return a poll's answer, or None while it is going on after ``wait_s``.

        It asks for ``most`` records, if no poll is going on.

        Raises:
            BaseException: What the poll raised.
        """
        if not self.is_busy:
            self.is_busy = True
            self._asked.put(most)
        try:
            answer = self._answers.get(timeout=wait_s)
        except Empty:
            return None
        self.is_busy = False
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self) -> None:
        """End the thread, behind the poll that is going on; may be called twice."""
        self._asked.put(0)
        self._thread.join(3 * POLL_MS / 1000.0)

    def _run(self) -> None:
        while True:
            try:
                most = self._asked.get(timeout=self._patience_s)
            except Empty:
                self._represent()
                continue
            if not most:
                return
            try:
                self._answers.put(self._poll(most))
            except BaseException as error:  # noqa: BLE001 - the reader raises it
                self._answers.put(error)

    def _represent(self) -> None:
        # not while the reader opens or closes partitions: the consumer is its own then
        if not self._consumer.acquire(blocking=False):
            return
        try:
            is_missed = monotonic_ms() / 1000.0 - self._given_s >= self._patience_s
            if is_missed and self._failure is None:
                self._stand_in()
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            self._failure = error
        finally:
            self._consumer.release()
