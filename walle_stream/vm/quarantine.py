"""Quarantine of tasks whose runs had to be stopped too often.

A strike is a stopped run. A task with too many strikes on one device no longer
runs there. With ten times as many in all, it no longer runs anywhere. Other
tasks of the device continue, and so does the task on other devices. A
quarantined run fails at once, and becomes a dead letter. Strikes last for this
process: a restart or a new version of the task begins without strikes.
"""

import threading

from walle_stream.vm.guest.session import TASK_FACTOR


class Quarantine:
    """Strikes of one task; thread-safe."""

    def __init__(self, strikes: int) -> None:
        """Start without strikes; a device with ``strikes`` strikes is quarantined."""
        self._strikes = strikes
        self._by_device: dict[str, int] = {}
        self._total = 0
        self.has_strikes = False
        """Whether there are any strikes; without them no device needs a check."""
        self._lock = threading.Lock()

    def strike(self, device_id: str, count: int = 1) -> None:
        """Count stopped runs."""
        with self._lock:
            self._by_device[device_id] = self._by_device.get(device_id, 0) + count
            self._total += count
            self.has_strikes = self._total > 0

    def reason(self, device_id: str) -> str | None:
        """Return why a task may not run on a device; None if it may."""
        if self._total >= self._strikes * TASK_FACTOR:
            return f"quarantined on all devices after {self._total} runs that had to be stopped"
        count = self._by_device.get(device_id, 0)
        if count >= self._strikes:
            return f"quarantined on device {device_id!r} after {count} runs that had to be stopped"
        return None
