"""Processes of a pipeline: found, told apart and killed, never another's.

A number is given again to another process after a death, so an identity is the
number with the time of the start. Linux only (``/proc``); elsewhere nobody is
found but the process that was started.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_PROC: Final = Path("/proc")


class ProcessId(msgspec.Struct, frozen=True):
    """One process, for good."""

    pid: int
    started: int
    """Ticks from the machine's start to the process's."""


def look_at(pid: int) -> ProcessId | None:
    """Return a process's identity; None when it is not there, or dead and not reaped."""
    fields = _stat(pid)
    return ProcessId(pid, int(fields[19])) if fields and fields[0] not in "ZX" else None


def children_of(pid: int) -> list[ProcessId]:
    """Return the living children of a process, whatever thread started them, by number."""
    found = []
    for each in _pids():
        fields = _stat(each)
        if fields and fields[0] not in "ZX" and int(fields[1]) == pid:
            found.append(ProcessId(each, int(fields[19])))
    return found


def with_environment(name: str, value: str) -> list[ProcessId]:
    """Return the living processes that were started with a variable, by number.

    Args:
        name: Of the variable.
        value: The whole value.
    """
    wanted = f"{name}={value}".encode()
    found = []
    for pid in _pids():
        # other users' processes, and those that end just now
        with suppress(OSError):
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                identity = look_at(pid)
                if identity is not None:
                    found.append(identity)
    return found


def command_line(process: ProcessId) -> str:
    """Return its arguments, or the title it gave itself; empty when it is gone."""
    try:
        line = (_PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return line.replace(b"\0", b" ").decode(errors="replace").strip()


def kill(process: ProcessId) -> bool:
    """Send SIGKILL.

    Returns:
        Whether it was alive.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # the handle names whoever has the number now: is it still the same?
        if look_at(process.pid) != process:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def await_end(process: ProcessId, timeout_s: float) -> bool:
    """Block until a process that need not be a child is gone.

    Args:
        process: Which.
        timeout_s: At most so long.

    Returns:
        Whether it is.
    """
    import select  # noqa: PLC0415 - has no poll on platforms that lack /proc, too

    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        if look_at(process.pid) != process:
            return True
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000.0))
    finally:
        os.close(handle)


def _pids() -> list[int]:
    if not _PROC.exists():
        return []
    return sorted(int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _stat(pid: int) -> list[str]:
    # from the state on: the name before it may hold anything, spaces and brackets too
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
