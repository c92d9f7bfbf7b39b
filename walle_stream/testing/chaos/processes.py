"""Processes of a pipeline: search, identity, and kills that never hit another process.

The system reuses process numbers, so an identity is the number with the start time. Linux only
(``/proc``); elsewhere searches find nothing.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_PROC: Final = Path("/proc")


class ProcessId(msgspec.Struct, frozen=True):
    """Lasting identity of a process."""

    pid: int
    started: int
    """Ticks from the machine's start to the start of the process."""


def look_at(pid: int) -> ProcessId | None:
    """Return a process's identity; None if it does not exist, or is dead and not reaped."""
    fields = _stat(pid)
    return ProcessId(pid, int(fields[19])) if fields and fields[0] not in "ZX" else None


def children_of(pid: int) -> list[ProcessId]:
    """Return the living children of all threads of a process, by number."""
    found = []
    for each in _pids():
        fields = _stat(each)
        if fields and fields[0] not in "ZX" and int(fields[1]) == pid:
            found.append(ProcessId(each, int(fields[19])))
    return found


def with_environment(name: str, value: str) -> list[ProcessId]:
    """Return the living processes that were started with a variable, by number.

    Args:
        name: Name of the variable.
        value: Its complete value.
    """
    wanted = f"{name}={value}".encode()
    found = []
    for pid in _pids():
        # other users' processes, and processes that are just ending
        with suppress(OSError):
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                identity = look_at(pid)
                if identity is not None:
                    found.append(identity)
    return found


def command_line(process: ProcessId) -> str:
    """Return a process's arguments, or the title that it set; empty if it is gone."""
    try:
        line = (_PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return line.replace(b"\0", b" ").decode(errors="replace").strip()


def kill(process: ProcessId) -> bool:
    """Send SIGKILL.

    Returns:
        Whether the process was alive.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # the handle belongs to the current process of that number: check that it is the same
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
        process: The process.
        timeout_s: Longest wait.

    Returns:
        Whether the process is gone.
    """
    import select  # noqa: PLC0415 - platforms without /proc may lack poll

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
    # fields from the state on: the name before may contain spaces and brackets
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
