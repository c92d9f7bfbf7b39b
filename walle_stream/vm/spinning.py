"""Duration for which a VM and its caller spin before they sleep.

To wake a sleeping thread takes 3 us if its core is busy, and 40 to 200 us if
the core sleeps, too (a virtual machine gives its core away). To spin for the
same time at most doubles the cost, and makes short calls ten times shorter.
The time is measured once per process.
"""

import os
import platform
import statistics
import threading
import time
from functools import cache
from typing import Final

from walle_stream.vm.doorbell import Doorbell

_LONGEST_US: Final = 400.0
_SHORTEST_US: Final = 20.0
_TRIALS: Final = 5
_PAUSE_S: Final = 0.001
_SAMPLE: Final = 5_000


def can_spin() -> bool:
    """Return whether spinning works here.

    Spinning needs a second core, memory that keeps the order of writes, and a
    doorbell that may ring without a waiting thread.
    """
    return (
        platform.machine() in {"x86_64", "AMD64"}
        and hasattr(os, "eventfd")
        and len(os.sched_getaffinity(0)) > 1
    )


@cache
def spin_count() -> int:
    """Return the number of checks before sleeping; 0 if spinning does not work.

    The first call blocks for about 10 ms.
    """
    if not can_spin():
        return 0
    wake_us = min(max(6.0 * _wake_us(), _SHORTEST_US), _LONGEST_US)
    return int(wake_us / _look_us())


def _wake_us() -> float:
    bell, woken = Doorbell(), Doorbell()
    times: list[int] = []

    def sleep() -> None:
        for _ in range(_TRIALS):
            bell.wait()
            times.append(time.perf_counter_ns())
            woken.ring()

    thread = threading.Thread(target=sleep, name="walle-vm-spinning", daemon=True)
    thread.start()
    latencies = []
    for _ in range(_TRIALS):
        time.sleep(_PAUSE_S)  # until the thread's core sleeps
        before = time.perf_counter_ns()
        bell.ring()
        woken.wait()
        latencies.append(times[-1] - before)
    thread.join()
    bell.close()
    woken.close()
    return statistics.median(latencies) / 1_000.0


def _look_us() -> float:
    number = memoryview(bytearray(16)).cast("Q")
    before = time.perf_counter_ns()
    for _ in range(_SAMPLE):
        if number[1] != 0:
            break
    return (time.perf_counter_ns() - before) / 1_000.0 / _SAMPLE
