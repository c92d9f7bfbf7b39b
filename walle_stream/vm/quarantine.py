"""Who may not run any more: scripts that had to be stopped too often.

A strike is a run that was stopped. A task with too many on one device no
longer runs there; with ten times as many in all it no longer runs at all. The
device's other tasks go on, and so does the task elsewhere. What would have run
fails at once, so it is kept as a dead letter. Strikes are those of this
process: a restart, or a new version of the task, begins anew.
"""

import threading

from walle_stream.vm.guest.session import TASK_FACTOR


class Quarantine:
    """Strikes of one task. Thread-safe."""

    def __init__(self, strikes: int) -> None:
        """Start without strikes; with this many a task is out on a device."""
        self._strikes = strikes
        self._by_device: dict[str, int] = {}
        self._total = 0
        self.has_strikes = False
        """Whether there are any: without, nobody needs to be asked for."""
        self._lock = threading.Lock()

    def strike(self, device_id: str, count: int = 1) -> None:
        """Count runs that were stopped."""
        with self._lock:
            self._by_device[device_id] = self._by_device.get(device_id, 0) + count
            self._total += count
            self.has_strikes = self._total > 0

    def reason(self, device_id: str) -> str | None:
        """Say why a task may not run on a device; None when it may."""
        if self._total >= self._strikes * TASK_FACTOR:
            return f"quarantined on all devices after {self._total} runs that had to be stopped"
        count = self._by_device.get(device_id, 0)
        if count >= self._strikes:
            return f"quarantined on device {device_id!r} after {count} runs that had to be stopped"
        return None
