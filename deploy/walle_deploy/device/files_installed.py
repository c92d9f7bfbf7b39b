"""The versions of a device: for each task the installed version and the previous one.

Each device has one small file, which is replaced as a whole. Files of the previous version stay
until the next installation, so a rollback fetches nothing.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.pushes import PushedTask
from walle_deploy.trust.layout import full_disk, put_file
from walle_stream.errors import IntegrityError
from walle_stream.store.files import make_folder

_FORMAT: Final = 1


class InstalledTask(msgspec.Struct, frozen=True):
    """A task on a device. An uninstalled task has no current version."""

    current: PushedTask | None = None
    previous: PushedTask | None = None
    """The last good version before the current one."""


class _Record(msgspec.Struct, frozen=True):
    format: int
    device: str
    tasks: dict[str, InstalledTask]


class InstalledVersions:
    """The record of one device. One writer at a time."""

    def __init__(self, folder: Path, device: str) -> None:
        """Read the record.

        Raises:
            IntegrityError: The record cannot be read.
        """
        # an id may contain characters that file names must not
        self.path = folder / f"{hashlib.sha256(device.encode()).hexdigest()[:32]}.json"
        self._device = device
        make_folder(folder)
        record = _read(self.path) if self.path.exists() else None
        self.tasks: dict[str, InstalledTask] = dict(record.tasks) if record else {}

    def install(self, task: PushedTask) -> None:
        """Record the version that is in use now; an empty version records an uninstallation.

        Raises:
            StoreFullError: The disk is full; the record is unchanged.
        """
        before = self.tasks.get(task.task, InstalledTask()).current
        current = task if task.version else None
        tasks = {**self.tasks, task.task: InstalledTask(current, before)}
        with full_disk(self.path):
            put_file(self.path, msgspec.json.encode(_Record(_FORMAT, self._device, tasks)))
        self.tasks = tasks

    def versions(self) -> dict[str, str]:
        """Return the installed versions in the form of a profile."""
        return {name: task.current.version for name, task in self.tasks.items() if task.current}


def named_files(folder: Path) -> set[str]:
    """Return the SHA-256 of every file that any device of this machine may need.

    Raises:
        IntegrityError: A record cannot be read, so no file may be removed.
    """
    digests = set()
    for path in folder.glob("*.json"):
        for entry in _read(path).tasks.values():
            for task in (entry.current, entry.previous):
                digests |= {file.sha256 for file in task.files} if task else set()
    return digests


def _read(path: Path) -> _Record:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise IntegrityError(
            f"{path}: the record cannot be read: {error}: remove this file"
        ) from error
    if record.format != _FORMAT:
        raise IntegrityError(f"{path}: the record has format {record.format}, expected {_FORMAT}")
    return record
