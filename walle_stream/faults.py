"""Named crash points, at which tests can kill the pipeline.

Production code calls :func:`crash_point` at places where a crash is interesting. The
call does nothing unless the environment asks for it:

- ``WALLE_CRASH`` is ``NAME`` or ``NAME:N``. The process kills itself with SIGKILL when it
  reaches the point for the N-th time (1 when left out). No handler and no clean-up runs.
- ``WALLE_PHASE_FILE`` names a file whose first byte holds the number (from 1) of the last
  passed point. It shows the process's work at a random kill. ``%p`` in the name is the
  process id, for runs of several processes.
- ``WALLE_SYNC_MS`` is added to the time of every flush of a log, like a slow disk, for
  benchmarks and tests.
"""

import mmap
import os
import signal
import time
from pathlib import Path
from typing import Final

CRASH_POINTS: Final = (
    "recover.before",
    "recover.after",
    "read.batch",
    "vm.before",
    "vm.after",
    "flush.before",
    "commit.before",
    "commit.after",
    "send.before",
    "send.after",
    "letter.before",
    "letter.after",
    "ack.before",
    "cloud.before",
    "cloud.after",
    "sink.after",
    "reply.before",
    "reply.after",
    "close.before",
)
"""All points of a pipeline, in the order in which a batch passes them."""

PLATFORM_POINTS: Final = (
    "publish.built",
    "publish.stored",
    "sign.bins",
    "sign.snapshot",
    "publish.signed",
    "turn.before",
    "change.before",
    "change.after",
    "reports.before",
    "reports.after",
    "pull.after",
    "package.part",
    "package.stored",
    "install.before",
    "install.after",
)
"""Points of the deployment platform: a version's way from the tag to a device's task set."""


class _Faults:
    def __init__(self) -> None:
        name, _, count = os.environ.get("WALLE_CRASH", "").partition(":")
        self.name = name
        self.left = int(count) if count.isdigit() else 1
        self.phase: mmap.mmap | None = None
        file = os.environ.get("WALLE_PHASE_FILE")
        if file:
            path = Path(file.replace("%p", str(os.getpid())))
            if not path.exists() or path.stat().st_size < 1:
                path.write_bytes(b"\0")
            with path.open("r+b") as opened:
                self.phase = mmap.mmap(opened.fileno(), 1)
        self.is_on = bool(name) or self.phase is not None

    def reach(self, name: str) -> None:
        if self.phase is not None:
            self.phase[0] = (CRASH_POINTS + PLATFORM_POINTS).index(name) + 1
        if name == self.name:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


_faults = _Faults()


def crash_point(name: str) -> None:
    """Kill this process with SIGKILL if this point is armed and due.

    Args:
        name: One of ``CRASH_POINTS`` or ``PLATFORM_POINTS``.
    """
    if _faults.is_on:
        _faults.reach(name)


_SLOW_SYNC_S: Final = float(os.environ.get("WALLE_SYNC_MS") or 0.0) / 1000.0


def slow_sync() -> None:
    """Sleep for ``WALLE_SYNC_MS``, without the interpreter's lock, like a slow disk."""
    if _SLOW_SYNC_S:
        time.sleep(_SLOW_SYNC_S)
