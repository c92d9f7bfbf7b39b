"""How a script and the test that watches it meet: empty files in a folder.

``NAME.reached``: the source stands at that pause. ``NAME.open``: the test lets
it pass, now or whenever it comes there. ``NAME.aborted``: that abort was done,
and is passed by later processes.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms

LOOK_S: Final = 0.01
"""Time between two looks for a file."""


class Gates:
    """The folder, for both sides. Any thread, any process."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when something is put there.

        Args:
            folder: ``spec.source.gates``, or ``SCRIPT.gates``.
        """
        self._folder = folder

    # The test's side

    def release(self, name: str) -> None:
        """Let every process pass a pause."""
        self._put(f"{name}.open", exclusive=False)

    def is_reached(self, name: str) -> bool:
        """Return whether a process stands, or stood, at a pause."""
        return (self._folder / f"{name}.reached").exists()

    def await_reached(self, name: str, timeout_s: float) -> bool:
        """Block until a pause is reached.

        Args:
            name: The pause's.
            timeout_s: At most so long.

        Returns:
            Whether it was.
        """
        deadline_ms = monotonic_ms() + timeout_s * 1000.0
        while not self.is_reached(name):
            if monotonic_ms() > deadline_ms:
                return False
            time.sleep(LOOK_S)
        return True

    def is_aborted(self, name: str) -> bool:
        """Return whether an abort was done."""
        return (self._folder / f"{name}.aborted").exists()

    # The source's side

    def reach(self, name: str) -> bool:
        """Say that a pause is reached, and return whether it may be passed; never blocks."""
        self._put(f"{name}.reached", exclusive=False)
        return (self._folder / f"{name}.open").exists()

    def abort(self, name: str) -> None:
        """Kill this process with SIGKILL, unless one was killed here before.

        Of several processes that come here at once exactly one dies.
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
