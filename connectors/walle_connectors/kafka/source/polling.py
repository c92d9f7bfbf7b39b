"""Polls of a consumer in a thread of its own, one at a time and only on request.

The reader's thread cannot poll itself. A member that joins a group must stay in one poll until the
others have joined (kafka-python 3.0 starts over when a join ends outside a poll). That takes
seconds, while a reader must return within milliseconds.
Between ``take`` and ``give`` the consumer belongs to the reader, except for polls that the reader
requested. No poll runs without a request. A reader may stay away while its host waits for room in
the tunnel. A stand-in then polls for it, since the group counts polls.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from walle_connectors.kafka.source.fetching import Polled
from walle_stream.clock import monotonic_ms

POLL_MS: Final = 1_000
"""Longest poll; it ends at once when records arrive."""


class PollThread:
    """Thread that runs polls for a reader."""

    def __init__(
        self,
        poll: Callable[[int], Polled],
        name: str,
        stand_in: Callable[[], None],
        patience_s: float,
    ) -> None:
        """Start the thread; ``poll`` takes the number of records and blocks for about ``POLL_MS``.

        When the reader has not taken the consumer for ``patience_s``, the thread takes it and runs
        ``stand_in``. The reader's next ``take`` raises an error of the stand-in.
        """
        self._poll = poll
        self._stand_in = stand_in
        self._patience_s = patience_s
        self._given_s = 0.0
        self._consumer = threading.RLock()  # reentrant: leaving may be part of a turn
        self._failure: BaseException | None = None
        self._asked: SimpleQueue[int] = SimpleQueue()  # 0 ends the thread
        self._answers: SimpleQueue[Polled | BaseException] = SimpleQueue()
        self.is_busy = False
        """Whether an answer is pending or not taken yet; for the reader's thread."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float) -> bool:
        """Take the consumer for a turn; call ``give`` afterwards.

        Waits at most ``wait_s`` for a stand-in. Returns False if the consumer was not taken.

        Raises:
            BaseException: The error of an earlier stand-in.
        """
        if not self._consumer.acquire(timeout=wait_s):
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            self._consumer.release()
            raise failure
        return True

    def give(self) -> None:
        """Give the consumer back; a requested poll may continue."""
        self._given_s = monotonic_ms() / 1000.0
        self._consumer.release()

    def poll(self, most: int, wait_s: float) -> Polled | None:
        """Return a poll's answer, or None if it is still running after ``wait_s``.

        Requests a poll for ``most`` records if none is running.

        Raises:
            BaseException: The error of the poll.
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
        """End the thread after its current poll; may be called twice."""
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
        # the reader may be opening or closing partitions and then owns the consumer
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
