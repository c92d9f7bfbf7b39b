"""Isolation of tasks: requirements on this machine, and trust in packages.

A package's author chose its isolation. That choice holds if this user built the package on this
machine, or if a signature covers it. Any other package runs in processes. The pipeline may set a
minimum for all packages (``spec.runtime.minimumIsolation``).
"""

import hashlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from walle_stream.app.programs.programs import ReadyTask, compile_task
from walle_stream.errors import IsolationError
from walle_stream.spec.isolation import POLICIES, Policy
from walle_stream.spec.loader import ISOLATION, LoadedPipeline
from walle_stream.vm.containment import measures_here

_log = logging.getLogger(__name__)


def check_machine(tasks: Iterable[ReadyTask], places: Mapping[tuple[str, str], str]) -> None:
    """Refuse tasks whose requirements this machine lacks; starts a process for the check.

    Raises:
        IsolationError: The first such task.
    """
    for task in tasks:
        problem = _lacking(task)
        if problem:
            place = places.get((task.name, ISOLATION), "")
            text = f"task {task.name!r}: {problem}; see docs/isolation.md"
            raise IsolationError(f"{place}: {text}" if place else text, task.name, place)


def _lacking(task: ReadyTask) -> str:
    confinement = task.program.confinement
    required = set(confinement.required)
    if missing := required and sorted(required - (measures_here() or frozenset())):
        return f"this machine or this user lacks {', '.join(missing)}, which it requires"
    if confinement.cpu_ms and sys.platform != "linux":
        return "this machine cannot limit the CPU time of its runs"
    return ""


def ready_tasks(loaded: LoadedPipeline[ReadyTask]) -> list[ReadyTask]:
    """Compile the scripts of a definition, and decide the isolation of its packages."""
    floor = loaded.pipeline.spec.runtime.minimum_isolation
    return [
        admit(task, floor, is_signed=False) if isinstance(task, ReadyTask) else compile_task(task)
        for task in loaded.tasks
    ]


def admit(task: ReadyTask, floor: Policy, *, is_signed: bool) -> ReadyTask:
    """Return a packaged task with the isolation that it must have; log a change.

    ``is_signed``: whether a verified signature covers the package.
    """
    isolation = task.program.isolation
    least, reason = floor, f"spec.runtime.minimumIsolation is {floor}"
    if not is_signed and not _is_built_here(task.package):
        least, reason = "process", "its package is not signed and was not built here"
    if POLICIES.index(isolation) >= POLICIES.index(least):
        return task
    _log.warning(
        "task %s %s runs with isolation: %s, not %s: %s",
        *(task.name, task.version, least, isolation, reason),
        extra={"task": task.name},
    )
    program = msgspec.structs.replace(task.program, isolation=least)
    return msgspec.structs.replace(task, program=program)


def note_built(package: bytes) -> None:
    """Record that this user built a package on this machine.

    If the record cannot be written, later runs treat the package as foreign.
    """
    with suppress(OSError, RuntimeError):
        path, digest = _built(), hashlib.sha256(package).hexdigest()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_built_here(digest):
            with path.open("a", encoding="ascii") as stream:
                stream.write(f"{digest}\n")


def _is_built_here(digest: str) -> bool:
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        return digest in _built().read_text(encoding="ascii").splitlines()
    return False


def _built() -> Path:
    # XDG Base Directory Specification; a user without a home has no such file
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "walle" / "built-packages"
