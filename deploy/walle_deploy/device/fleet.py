"""The agents of all devices of one host. Each checks at an interval; a few threads do the checks.

It runs beside a host (``app.local.LocalRun``), and keeps its devices at the versions that the
release service offers.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from walle_deploy.device.agent import DeviceAgent, Outcome
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ServiceBusyError, WalleError

REASONS_MAX: Final = 8
"""Largest number of distinct reasons per class; a server can invent a new one each time."""

_log = logging.getLogger(__name__)
BACKOFF_MAX_S: Final = 60.0
"""Longest pause of a device whose service does not answer."""


class Failures:
    """Failures of devices. Each reason is logged once, since thousands of devices may share it."""

    def __init__(self) -> None:
        """Start without failures."""
        self._of: dict[int, tuple[str, str]] = {}
        """Class and text of the error, for each device that fails now."""
        self._now: Counter[tuple[str, str]] = Counter()
        """Number of devices that fail, by reason."""
        self._lock = threading.Lock()

    def add(self, index: int, device: str, error: Exception) -> None:
        """Record a failure; the first one for its reason is logged."""
        with self._lock:
            reason = self._reason(index, error)
            if reason == self._of.get(index):
                return
            self._leave(index)
            is_new = reason not in self._now
            self._of[index] = reason
            self._now[reason] += 1
        if is_new:
            # a foreign exception is a bug: log its traceback
            trace = None if isinstance(error, WalleError) else error
            _log.warning(
                "%s; next attempt later; this is logged once for all devices with this failure",
                error,
                extra={"device_id": device},
                exc_info=trace,
            )

    def clear(self, index: int) -> None:
        """Record that a device no longer fails; the last such device of a reason is logged."""
        if index not in self._of:  # nearly always
            return
        with self._lock:
            reason = self._of[index]
            self._leave(index)
            is_over = reason not in self._now
        if is_over:
            _log.warning("%s; that is over", reason[1])

    def _reason(self, index: int, error: Exception) -> tuple[str, str]:
        kind, text = type(error).__name__, str(error)
        known = sum(reason[0] == kind for reason in self._now)
        if (kind, text) in self._now or known < REASONS_MAX:
            return kind, text
        before = self._of.get(index)
        return before if before is not None and before[0] == kind else (kind, "other reasons")

    def _leave(self, index: int) -> None:
        reason = self._of.pop(index, None)
        if reason is not None:
            self._now[reason] -= 1
            self._now += Counter()  # drop reasons without devices


class Fleet:
    """Runs the checks of all agents. Start once, close once."""

    def __init__(self, agents: Iterable[DeviceAgent], every_s: float, threads: int = 4) -> None:
        """Plan the first checks, evenly spread over one interval."""
        self.counts: Counter[str] = Counter()
        self._every_ms = every_s * 1_000
        self._agents = list(agents)
        now_ms, count = monotonic_ms(), max(len(self._agents), 1)
        self._due = [
            (now_ms + self._every_ms * index / count, index) for index in range(len(self._agents))
        ]
        heapify(self._due)
        self._failures = [0] * len(self._agents)
        self._why = Failures()
        self._learned: set[int] = set()
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._live, name=f"walle-agents-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the checks; the host must be ready to install."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the checks; waits for running installations."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _live(self) -> None:
        while (index := self._next()) is not None:
            pause_ms = self._check(index)
            with self._changed:
                heappush(self._due, (monotonic_ms() + pause_ms, index))
                self._changed.notify()

    def _next(self) -> int | None:
        with self._changed:
            while not self._is_closed:
                wait_ms = self._due[0][0] - monotonic_ms() if self._due else self._every_ms
                if self._due and wait_ms <= 0:
                    return heappop(self._due)[1]
                self._changed.wait(wait_ms / 1_000)
        return None

    def _check(self, index: int) -> float:
        """Check one device; return the pause in ms until its next check."""
        agent = self._agents[index]
        try:
            if index not in self._learned:
                agent.learn()
                self._learned.add(index)
            outcome = agent.check()
        except ServiceBusyError as error:
            self._count("busy")
            return error.after_s * 1_000
        except Exception as error:  # noqa: BLE001 - the device must check again after any error
            return self._late(index, error)
        self._failures[index] = 0
        self._why.clear(index)
        self._count(outcome.value)
        return self._every_ms if outcome is not Outcome.INSTALLED else min(self._every_ms, 1_000.0)

    def _late(self, index: int, error: Exception) -> float:
        """Record a failed check; return the pause in ms."""
        if self._is_closed:
            return self._every_ms
        self._count("checks that failed")
        self._failures[index] += 1
        self._why.add(index, self._agents[index].device, error)
        longest_ms = max(BACKOFF_MAX_S * 1_000, self._every_ms)
        return min(self._every_ms * 2.0 ** min(self._failures[index], 20), longest_ms)

    def _count(self, what: str) -> None:
        with self._changed:
            self.counts[what] += 1
