"""A source that gives a fixed number of events a second: a live one, for trying things out."""

from threading import Event as Flag
from typing import Final

from walle_stream.clock import monotonic_ms

_WAIT_MAX_S: Final = 0.02
_WAIT_MIN_S: Final = 0.0001  # less may not move the clock at all
_BURST_S: Final = 0.1


class Pace:
    """How many events may be given now. One thread."""

    def __init__(self, per_second: float) -> None:
        """Begin now."""
        self._per_ms = per_second / 1000.0
        self._seen_ms = monotonic_ms()
        self._allowed = 0.0

    def allow(self, most: int) -> int:
        """Return how many events may be given; waits a moment where it is none.

        What was not taken in a tenth of a second is not made up for.
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
        """Count what was given."""
        self._allowed -= events
