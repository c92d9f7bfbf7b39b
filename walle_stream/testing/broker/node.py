"""A Kafka server that tests own: its interface, and the server that runs on a JDK."""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Protocol

_LOG_LINES: Final = 8


class Node(Protocol):
    """A server, initially not started. For one thread; calls return when they have taken effect."""

    def start(self) -> None:
        """Start it on its earlier data; returns before it listens."""

    def kill(self) -> None:
        """End it with SIGKILL; its data on disk stay."""

    def pause(self) -> None:
        """Stop all its threads; its connections stay open."""

    def resume(self) -> None:
        """Continue after ``pause``."""

    def close(self) -> None:
        """End it for good; may be called twice."""

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""

    @property
    def log(self) -> str:
        """The last lines of its log."""


class ProcessNode:
    """A server on this machine's JDK, by ``deploy/kafka/broker``; ends with this process."""

    def __init__(self, script: Path, folder: Path, environment: Mapping[str, str]) -> None:
        """Prepare the server without starting it.

        Args:
            script: ``deploy/kafka/broker``.
            folder: For its data and its log; made when missing.
            environment: ``KAFKA_*`` settings, which replace those of this process.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._command = [str(script), "run", str(folder)]
        self._log = folder / "log"
        own = {key: text for key, text in os.environ.items() if not key.startswith("KAFKA_")}
        self._environment = {**own, **environment, "WALLE_KAFKA_ENDS_WITH": str(os.getpid())}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only the tests."""
        with self._log.open("ab") as log:
            self._process = self._run(log)

    def _run(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own script, no shell
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it with SIGKILL and wait for its end."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it with SIGCONT."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it, since its data are not needed any more."""
        self.kill()
        self._process = None

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The last lines of its log file."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_LOG_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # signal the group, which includes the script that watches this process
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def with_log(what: str, node: Node) -> str:
    """Return the text of a failure with the end of the server's log.

    Args:
        what: Description of the failure.
        node: The server.
    """
    return f"{what}; its log ends with:\n{node.log or '(nothing)'}"
