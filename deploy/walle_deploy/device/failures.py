"""Why devices of a host fail, told once for all that fail alike: a service has thousands."""

import logging
from threading import Lock
from typing import Final

from walle_stream.errors import WalleError

REASONS_MAX: Final = 8
"""Reasons of one class that are told apart; a server can make up a new one each time."""

_log = logging.getLogger(__name__)


class _Failing:
    def __init__(self) -> None:
        self.now: set[int] = set()
        self.ever: set[int] = set()


class Failures:
    """Those of a fleet. Any thread."""

    def __init__(self) -> None:
        """Begin with none."""
        self._reasons: dict[tuple[str, str], _Failing] = {}
        self._of: dict[int, tuple[str, str]] = {}
        self._lock = Lock()

    def add(self, index: int, device: str, error: Exception) -> None:
        """Take note of a failure; the first one for its reason is logged."""
        with self._lock:
            reason = self._reason(index, error)
            before = self._of.get(index)
            if reason == before:
                return
            if before is not None:
                self._leave(index, before)
            failing = self._reasons.get(reason)
            is_new = failing is None
            if failing is None:
                failing = self._reasons[reason] = _Failing()
            failing.now.add(index)
            failing.ever.add(index)
            self._of[index] = reason
        if is_new:
            # what is none of ours is a mistake of ours: its place is needed
            trace = None if isinstance(error, WalleError) else error
            _log.warning(
                "%s; asked again, and said once for all devices that it happens to",
                error,
                extra={"device_id": device},
                exc_info=trace,
            )

    def clear(self, index: int) -> None:
        """Take note that a device does not fail any more; of the last one it is logged."""
        if index not in self._of:  # nearly always
            return
        with self._lock:
            reason = self._of[index]
            count = self._leave(index, reason)
        if count:
            _log.warning("%s; that is over, %d device(s) had it", reason[1], count)

    def _reason(self, index: int, error: Exception) -> tuple[str, str]:
        kind, text = type(error).__name__, str(error)
        known = sum(reason[0] == kind for reason in self._reasons)
        if (kind, text) in self._reasons or known < REASONS_MAX:
            return kind, text
        before = self._of.get(index)
        return before if before is not None and before[0] == kind else (kind, "other reasons")

    def _leave(self, index: int, reason: tuple[str, str]) -> int:
        """Return how many had it where this was the last one, else 0."""
        del self._of[index]
        failing = self._reasons[reason]
        failing.now.discard(index)
        if failing.now:
            return 0
        del self._reasons[reason]
        return len(failing.ever)
