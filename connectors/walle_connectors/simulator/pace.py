"""Limits a source to a number of events per second, like a live source."""

from threading import Event as Flag
from typing import Final

from walle_stream.clock import monotonic_ms

_WAIT_MAX_S: Final = 0.02
_WAIT_MIN_S: Final = 0.0001  # a shorter wait may not advance the clock
_BURST_S: Final = 0.1


class Pace:
    """The number of events that are allowed now. One thread."""

    def __init__(self, per_second: float) -> None:
        """Start the clock."""
        self._per_ms = per_second / 1000.0
        self._seen_ms = monotonic_ms()
        self._allowed = 0.0

    def allow(self, most: int) -> int:
        """Return the number of allowed events; waits briefly if it is 0.

        Allowance beyond a tenth of a second is lost.
        """
        now_ms = monotonic_ms()
        burst = max(self._per_ms * _BURST_S * 1000.0, 1.0)
        self._allowed = min(self._allowed + (now_ms - self._seen_ms) * self._per_ms, burst)
        self._seen_ms = now_ms
        if self._allowed < 1.0:
            wait_s = (1.0 - self._allowed) / self._per_ms / 1000.0
            Flag().wait(min(max(wait_s, _WAIT_MIN_S), _WAIT_MAX_S))
            return 0
        return min(int(self._allowed), most)

    def take(self, events: int) -> None:
        """Subtract events that were given."""
        self._allowed -= events
