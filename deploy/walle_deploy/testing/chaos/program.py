"""One process of the world: started, killed, restarted."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.faults import CRASH_POINTS, PLATFORM_POINTS

_POINTS: Final = CRASH_POINTS + PLATFORM_POINTS
_TEXT_MAX: Final = 2_000


class Ended(msgspec.Struct, frozen=True):
    """The end of a process."""

    code: int
    """Exit status; negative for a signal."""
    phase: str = ""
    """For a kill: ``at NAME`` for the crash point it was armed for, or ``after NAME`` for the last
    one that it passed."""
    text: str = ""
    """End of its output."""

    @property
    def is_killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


class Program:
    """At most one process at a time. One thread."""

    def __init__(self, name: str, folder: Path, environ: Mapping[str, str]) -> None:
        """Prepare; nothing is started.

        Args:
            name: Name of the log.
            folder: For log and phase file.
            environ: Its whole environment, without the variables that arm it.
        """
        self.name = name
        self._log = folder / f"{name}.log"
        self._phase = folder / f"{name}.phase"
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._said_from = 0
        self._crash = ""
        self._is_shot = False

    @property
    def is_alive(self) -> bool:
        """Whether there is a process that ``poll`` has not reported as ended."""
        return self._process is not None

    @property
    def is_armed(self) -> bool:
        """Whether the process will kill itself at a crash point."""
        return self.is_alive and bool(self._crash)

    @property
    def has_begun(self) -> bool:
        """Whether it has passed a crash point, so it does some work."""
        return self.is_alive and bool(self._passed())

    def start(self, arguments: Sequence[str], crash: str = "") -> None:
        """Start ``walle``; returns at once.

        Args:
            arguments: Its command line.
            crash: ``POINT:VISIT`` at which it kills itself; empty for none.
        """
        self._phase.write_bytes(b"\0")
        environ = {**self._environ, "WALLE_PHASE_FILE": str(self._phase)}
        if crash:
            environ["WALLE_CRASH"] = crash
        self._crash, self._is_shot = crash, False
        self._said_from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as said:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", "walle_stream.cli", *arguments],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def poll(self) -> Ended | None:
        """Return the end of the process once; None while it runs, or without a process."""
        process = self._process
        if process is None or process.poll() is None:
            return None
        self._process = None
        passed = self._passed()
        is_aimed = bool(self._crash) and not self._is_shot
        phase = f"at {passed}" if is_aimed else f"after {passed}" if passed else "at the start"
        return Ended(process.returncode, phase, self.said()[-_TEXT_MAX:])

    def kill(self) -> None:
        """Send SIGKILL."""
        self._is_shot = True
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill and reap the process; may be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def said(self) -> str:
        """Return the output of the current process, or of the last one."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._said_from)
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def _passed(self) -> str:
        number = self._phase.read_bytes()[:1]
        return _POINTS[number[0] - 1] if number > b"\0" else ""

    def _signal(self, number: signal.Signals) -> None:
        # not reaped yet, so its id is still its own
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
