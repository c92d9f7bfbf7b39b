"""A process of the pipeline that is restarted when it ends too early.

This module acts like systemd or Kubernetes and does not know the purpose of a process. The exit
code tells whether the end was allowed; an end without a cause is a finding.
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
    """A supervised process. For one thread, which must call ``tick`` regularly."""

    def __init__(
        self,
        name: str,
        command: Callable[[bool], Sequence[str]],
        environ: Mapping[str, str],
        folder: Path,
        allowed: Mapping[int, str],
    ) -> None:
        """Prepare the process without starting it.

        Args:
            name: Name of the process, such as ``host-0``.
            command: Returns the command line; its argument tells whether the input ends.
            environ: Its complete environment.
            folder: For its output and its phase files.
            allowed: Exit codes after which it is restarted, with reasons.
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
        """Whether it is stopped by SIGSTOP."""
        self.failure = ""
        """Its output at an end that is not allowed."""
        self.ends: Counter[int] = Counter()
        """Counts of allowed exit codes."""

    def start(self, *, is_bounded: bool = False) -> None:
        """Keep the process running from now on.

        Args:
            is_bounded: Whether it runs until the end of its input, or else until ``terminate``.
        """
        self._is_wanted, self._is_bounded, self._due_ms = True, is_bounded, 0.0
        self._is_terminated = False
        self.tick()

    def terminate(self) -> None:
        """Send SIGTERM once, since a second one would end it at once; do not restart it."""
        self._is_wanted = False
        if not self._is_terminated:
            self._is_terminated = True
            self._signal(signal.SIGTERM)

    def kill(self, again_ms: float = 0.0) -> bool:
        """Send SIGKILL; a wanted process is restarted after ``again_ms``.

        Returns:
            Whether the process was alive.
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
        """Send SIGCONT to a stopped process."""
        if self.is_stopped:
            self.is_stopped = False
            self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill and reap the process; may be called twice."""
        self._is_wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def tick(self) -> None:
        """Handle an end of the process and restart it when due; never blocks."""
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
        """Whether the process exists, stopped or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_wanted(self) -> bool:
        """Whether the process should run; False after the end of its input."""
        return self._is_wanted

    def said(self) -> str:
        """Return the output of the current or last process."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._said_from)
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def phase(self) -> str:
        """Return the last crash point of the current process; empty before the first."""
        if self._process is None:
            return ""
        try:
            number = (self._folder / f"{self.name}.{self._process.pid}").read_bytes()[:1]
        except OSError:
            return ""
        return CRASH_POINTS[number[0] - 1] if number > b"\0" else ""

    def _signal(self, number: signal.Signals) -> None:
        # the process is not reaped yet, so its number is not reused
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
