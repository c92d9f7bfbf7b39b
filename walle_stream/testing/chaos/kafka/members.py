"""One process of the pipeline, started again whenever it ended too early.

What systemd or Kubernetes would do: nothing here knows what a process is good for. How
it ended tells whether that was allowed; an end that nobody caused is a finding.
"""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.faults import CRASH_POINTS

_AGAIN_MS: Final = 300.0
_TEXT_MAX: Final = 1_500
_ENDED: Final = frozenset({0, -signal.SIGTERM})


class Member:
    """A process by its role and place. One thread, which has to call ``tick``."""

    def __init__(
        self,
        name: str,
        command: Callable[[bool], Sequence[str]],
        environ: Mapping[str, str],
        folder: Path,
        allowed: Mapping[int, str],
    ) -> None:
        """Prepare; nothing is started.

        Args:
            name: E.g. ``host-0``.
            command: Returns the command line; told whether the input is to end.
            environ: Its whole environment.
            folder: For what it says and where it is.
            allowed: Exit codes after which it is started again, with why.
        """
        self.name = name
        self._command = command
        self._folder = folder
        self._log = folder / f"{name}.txt"
        self._environ = {**environ, "WALLE_PHASE_FILE": str(folder / f"{name}.%p")}
        self._allowed = allowed
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = self._is_bounded = False
        self._is_killed = self._is_terminated = False
        self._due_ms = 0.0
        self._said_from = 0
        self.is_stopped = False
        """Whether it was sent SIGSTOP."""
        self.failure = ""
        """What it said when it ended as it should not."""
        self.ends: Counter[int] = Counter()
        """Exit codes that were allowed."""

    def start(self, *, is_bounded: bool = False) -> None:
        """Have it run from now on.

        Args:
            is_bounded: Until the end of its input, else until it is told.
        """
        self._is_wanted, self._is_bounded, self._due_ms = True, is_bounded, 0.0
        self._is_terminated = False
        self.tick()

    def terminate(self) -> None:
        """Send SIGTERM, once: a second one would end it at once. It is not started again."""
        self._is_wanted = False
        if not self._is_terminated:
            self._is_terminated = True
            self._signal(signal.SIGTERM)

    def kill(self, again_ms: float = 0.0) -> bool:
        """Send SIGKILL; it is started again if it was wanted.

        Returns:
            Whether it was alive.
        """
        if not self.is_alive:
            return False
        self._is_killed, self._due_ms = True, monotonic_ms() + again_ms
        self._signal(signal.SIGKILL)
        return True

    def stop(self) -> None:
        """Send SIGSTOP."""
        self.is_stopped = True
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT, if it was stopped."""
        if self.is_stopped:
            self.is_stopped = False
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill and reap it; may be called twice."""
        self._is_wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tick(self) -> None:
        """Look how it ended, and start it when that is due; never blocks."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._process, self.is_stopped = None, False
            self._judge(process.returncode)
        if self._process is None and self._is_wanted and monotonic_ms() >= self._due_ms:
            self._is_killed = False
            self._said_from = self._log.stat().st_size if self._log.exists() else 0
            with self._log.open("ab") as said:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    list(self._command(self._is_bounded)),
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )

    def _judge(self, code: int) -> None:
        if code == -signal.SIGKILL and self._is_killed:
            return
        if code == 0 and self._is_bounded:
            self._is_wanted = False
        elif self._is_terminated and code in _ENDED:
            return
        elif code in self._allowed:
            self.ends[code] += 1
            self._due_ms = max(self._due_ms, monotonic_ms() + _AGAIN_MS)
        else:
            self.failure = f"{self.name} ended with {code}: {self.said()[-_TEXT_MAX:]}"
            self._is_wanted = False

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, stopped or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_wanted(self) -> bool:
        """Whether it is to run; not any more when its input has ended."""
        return self._is_wanted

    def said(self) -> str:
        """Return what the process at hand, or the last one, has said."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._said_from)
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def phase(self) -> str:
        """Return the crash point passed last by the process at hand; empty before the first."""
        if self._process is None:
            return ""
        try:
            number = (self._folder / f"{self.name}.{self._process.pid}").read_bytes()[:1]
        except OSError:
            return ""
        return CRASH_POINTS[number[0] - 1] if number > b"\0" else ""

    def _signal(self, number: signal.Signals) -> None:
        # not reaped yet, so the number is still its own
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
