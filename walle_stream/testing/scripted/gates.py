"""Synchronization of a script with its test, by empty files in a folder.

``NAME.reached``: the source has reached that pause. ``NAME.open``: the test releases the pause, now
or in advance. ``NAME.aborted``: that abort was executed, and later processes pass it.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms

LOOK_S: Final = 0.01
"""Seconds between two checks for a file."""


class Gates:
    """The folder of files, for both sides. For any thread and any process."""

    def __init__(self, folder: Path) -> None:
        """Set the folder, which is made with its first file.

        Args:
            folder: ``spec.source.gates``, or ``SCRIPT.gates``.
        """
        self._folder = folder

    # The test's side

    def release(self, name: str) -> None:
        """Let every process pass a pause."""
        self._put(f"{name}.open", exclusive=False)

    def is_reached(self, name: str) -> bool:
        """Return whether a process has reached a pause."""
        return (self._folder / f"{name}.reached").exists()

    def await_reached(self, name: str, timeout_s: float) -> bool:
        """Block until a pause is reached.

        Args:
            name: Name of the pause.
            timeout_s: Longest wait.

        Returns:
            Whether the pause was reached.
        """
        deadline_ms = monotonic_ms() + timeout_s * 1000.0
        while not self.is_reached(name):
            if monotonic_ms() > deadline_ms:
                return False
            time.sleep(LOOK_S)
        return True

    def is_aborted(self, name: str) -> bool:
        """Return whether an abort was executed."""
        return (self._folder / f"{name}.aborted").exists()

    # The source's side

    def reach(self, name: str) -> bool:
        """Report that a pause is reached and return whether it is released; never blocks."""
        self._put(f"{name}.reached", exclusive=False)
        return (self._folder / f"{name}.open").exists()

    def abort(self, name: str) -> None:
        """Kill this process with SIGKILL, unless this abort has already killed a process.

        If several processes arrive at once, exactly one of them is killed.
        """
        if self._put(f"{name}.aborted", exclusive=True):
            os.kill(os.getpid(), signal.SIGKILL)

    def _put(self, name: str, *, exclusive: bool) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else 0)
        try:
            os.close(os.open(self._folder / name, flags, 0o600))
        except FileExistsError:
            return False
        return True
