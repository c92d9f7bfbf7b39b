"""Packages installed while a host runs: stored in the data directory and loaded in the pool.

A package is stored under its SHA-256 before anything names it, and deleted when no device has it
any more. After a crash at any point, every set of a partition therefore finds its packages.

``LocalRun.install`` stores packages and tells the hosts. A partition that meets a new set asks for
its programs (``actors.plan.partition_sets.ProgramSource``).
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from walle_stream.app.programs.isolation import admit
from walle_stream.app.programs.programs import ReadyTask, unpack_task
from walle_stream.errors import PackageError
from walle_stream.faults import crash_point
from walle_stream.ports import InstalledTask
from walle_stream.spec.isolation import Policy
from walle_stream.store.files import make_folder, put_file, refusal, sync_folder
from walle_stream.vm.pool import VmPool

_DIGITS: Final = 12


class NewVersion(msgspec.Struct, frozen=True):
    """A version of a task to install on devices."""

    package: bytes
    """The package. Its code runs here; the caller has checked its sender."""
    resources: Mapping[str, bytes] = {}
    """Files only for these devices, by the name that the script uses.

    They take precedence over the package's resources.
    """
    origin: str = ""
    """The caller's name of the version, such as ``shop/ipv@v2``; kept with the task."""
    is_signed: bool = False
    """Whether a signature checked by the caller covers the package; see ``isolation``."""


class InstalledPrograms:
    """Programs of one process. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        pool: VmPool,
        quarantined: Callable[[], Iterable[tuple[str, str]]],
        *,
        is_shared: bool = False,
        floor: Policy = "shared",
    ) -> None:
        """Keep the folder of stored packages; loads nothing.

        ``quarantined`` gives the quarantined (program, device id) pairs. If ``is_shared``, the
        folder also holds packages of other processes' devices.
        """
        self._folder = folder
        self._pool = pool
        self._quarantined = quarantined
        self._is_shared = is_shared
        self._floor: Policy = floor
        self._lock = Lock()
        self._loaded: set[str] = set()
        self._unpacked: dict[str, ReadyTask] = {}  # stored tasks, to be loaded next
        self._remove_parts()

    def store(self, version: NewVersion) -> tuple[str, InstalledTask]:
        """Store a package and its resources durably; blocks.

        Raises:
            PackageError: The bytes are no package, or not for this interpreter.
            StoreFullError: The disk is full; nothing has changed.
            StoreError: The folder cannot be written.
        """
        package, own = _digest(version.package), version.resources
        ready = unpack_task(version.package, own)
        digests = {name: _digest(data) for name, data in own.items()}
        self._write(package, version.package)
        for name, data in own.items():
            self._write(digests[name], data)
        crash_point("package.stored")
        text = "".join([package, *(f"{name}={digests[name]}" for name in sorted(own))])
        mark = (_digest(text.encode()) if own else package)[:_DIGITS]
        program = f"{ready.name}@{ready.version}#{mark}"
        task = ready.installed(program, package)
        self._unpacked[program] = ready
        facts = {"origin": version.origin, "is_signed": version.is_signed}
        return ready.name, msgspec.structs.replace(task, resources=digests, **facts)

    def ensure(self, task: str, installed: InstalledTask) -> None:
        """Load a program into the pool; see ``ProgramSource``."""
        ready = self._unpacked.pop(installed.program, None)
        if not installed.package or installed.program in self._loaded:
            return
        with self._lock:
            if installed.program in self._loaded:
                return
            if ready is None:
                own = {name: self._read(it, task) for name, it in installed.resources.items()}
                ready = unpack_task(self._read(installed.package, task), own)
            ready = admit(ready, self._floor, is_signed=installed.is_signed)
            # scripts see the task's name, while the pool distinguishes versions
            program = msgspec.structs.replace(ready.program, task=installed.program)
            out = [device for name, device in self._quarantined() if name == installed.program]
            self._pool.install(program, out)
            self._loaded.add(installed.program)

    def retain(self, programs: Mapping[str, InstalledTask]) -> None:
        """Remove all other installed programs from the pool, and delete their packages.

        A shared folder keeps its packages: devices of other processes may need them.
        """
        kept = {
            digest
            for task in programs.values()
            for digest in (task.package, *task.resources.values())
        }
        with self._lock:
            for name in self._loaded.difference(programs):
                self._pool.uninstall(name)
                self._loaded.discard(name)
            if self._is_shared:
                return
            with suppress(OSError):  # remaining files are deleted another time
                for path in self._folder.iterdir():
                    if path.name not in kept and path.name[:1] != ".":
                        path.unlink()

    def _remove_parts(self) -> None:
        """Delete the incomplete files of killed processes."""
        with suppress(OSError):  # remaining files are deleted another time
            for path in self._folder.glob(".*"):
                writer = path.suffix[1:]
                if writer.isdecimal() and not _is_alive(int(writer)):
                    path.unlink(missing_ok=True)

    def _write(self, digest: str, data: bytes) -> None:
        path = self._folder / digest
        try:
            if path.exists():
                sync_folder(self._folder)  # its writer may have died before the sync
                return
            make_folder(self._folder)
            # durable, as a commit that names it must not outlive it in a power cut
            put_file(path, data, on_part=lambda: crash_point("package.part"))
        except OSError as error:
            raise refusal(
                error,
                f"{path}: cannot be written: {error.strerror or error}: nothing was installed; "
                "free some space and install again",
            ) from error

    def _read(self, digest: str, task: str) -> bytes:
        path = self._folder / digest
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PackageError(
                f"{path}: task {task!r} is installed, but its file cannot be read: "
                f"{error.strerror or error}: install it again",
                str(path),
            ) from error
        if _digest(data) != digest:
            raise PackageError(
                f"{path}: task {task!r} is installed, but its file was changed: delete the file, "
                "and install the task again",
                str(path),
            )
        return data


def _is_alive(pid: int) -> bool:
    # this process writes nothing yet: the file is of an earlier process with the same id
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
