"""The only readers of the machine's clocks.

Nothing that ends up in a feature, a state row or a sequence number may come
from here: time is data (``event_time_ms``, ``ingest_time_ms``). These serve
measurement, time-outs of waits and log lines.
"""

import sys
import time


def monotonic_ms() -> float:
    """Return a clock that never goes back, in milliseconds, for durations."""
    return time.monotonic() * 1000.0


def unstopped_ms() -> float:
    """Return a clock that goes on while the machine sleeps, too, in milliseconds, for durations."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000.0
    return monotonic_ms()


def process_cpu_s() -> float:
    """Return the CPU seconds of all threads of this process, children not."""
    return time.process_time()


def wall_ms() -> int:
    """Return the wall clock as epoch milliseconds, for people and logs only."""
    return time.time_ns() // 1_000_000
