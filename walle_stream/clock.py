"""The only readers of the machine's clocks.

No feature, state row or sequence number may depend on these clocks: its time is
data (``event_time_ms``, ``ingest_time_ms``). The clocks serve measurements,
timeouts of waits, and log lines.
"""

import sys
import threading
import time
from collections.abc import Callable


def monotonic_ms() -> float:
    """Return the time of a clock that never goes back, in milliseconds, for durations."""
    return time.monotonic() * 1000.0


def unstopped_ms() -> float:
    """Return the time of a clock that also runs while the machine sleeps, in milliseconds."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000.0
    return monotonic_ms()


def process_cpu_s() -> float:
    """Return the CPU seconds of all threads of this process, without child processes."""
    return time.process_time()


def thread_cpu_ms() -> float:
    """Return the CPU time of the calling thread, in milliseconds."""
    return time.thread_time() * 1000.0


def cpu_clock_of_this_thread() -> Callable[[], float]:
    """Return a clock of the calling thread's CPU time in milliseconds, for any thread.

    It returns 0 after the thread's end. Without CPU clocks in the system, it is ``monotonic_ms``.
    """
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return monotonic_ms
    return _clock(time.pthread_getcpuclockid(threading.get_ident()))


def cpu_clock_of_process(pid: int) -> Callable[[], float]:
    """Return a clock of another process's CPU time in milliseconds.

    It returns 0 after the process's end. Without CPU clocks in the system, it is ``monotonic_ms``.

    Args:
        pid: The process, which must be alive now.
    """
    if sys.platform != "linux":
        return monotonic_ms
    # the result of clock_getcpuclockid(3), which Python lacks
    return _clock(~pid << 3 | 2)


def _clock(clock_id: int) -> Callable[[], float]:
    def read_ms() -> float:
        try:
            return time.clock_gettime(clock_id) * 1000.0
        except OSError:
            return 0.0  # the thread or process has ended

    return read_ms if read_ms() else monotonic_ms


def wall_ms() -> int:
    """Return the wall clock in epoch milliseconds, for people and logs only."""
    return time.time_ns() // 1_000_000
