"""Polls a consumer in a thread of its own, one poll at a time and only when asked.

Why not in the reader's thread: a member that joins a group must stay in one poll until
the others have joined, too (kafka-python 3.0 begins anew when it finds a join done that it
was not waiting for), and that takes seconds, while a reader must come back in milliseconds.
Between polls the consumer is the reader's: nothing is fetched ahead of what was asked for,
and a host that does not come back is noticed by the group's poll interval.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from walle_connectors.kafka.source.fetching import Polled

POLL_MS: Final = 1_000
"""Longest poll; it ends at once when records come."""


class PollThread:
    """Runs polls beside their reader."""

    def __init__(self, poll: Callable[[int], Polled], name: str) -> None:
        """Start the thread.

        Args:
            poll: Takes the number of records; returns within ``POLL_MS`` or a little more.
            name: Of the thread.
        """
        self._poll = poll
        self._asked: SimpleQueue[int] = SimpleQueue()  # 0: the end
        self._answers: SimpleQueue[Polled | BaseException] = SimpleQueue()
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poll(self, most: int, wait_s: float) -> Polled | None:
        """Return what a poll gave, or None while it is going on.

        Args:
            most: Records to ask for, if no poll is going on.
            wait_s: How long to wait for it.

        Raises:
            BaseException: What the poll raised.
        """
        if not self._is_busy:
            self._is_busy = True
            self._asked.put(most)
        try:
            answer = self._answers.get(timeout=wait_s)
        except Empty:
            return None
        self._is_busy = False
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self) -> None:
        """End the thread, behind the poll that is going on; may be called twice."""
        self._asked.put(0)
        self._thread.join(3 * POLL_MS / 1000.0)

    def _run(self) -> None:
        while most := self._asked.get():
            try:
                self._answers.put(self._poll(most))
            except BaseException as error:  # noqa: BLE001 - the reader raises it
                self._answers.put(error)
